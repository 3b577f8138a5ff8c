{{/* Names, labels and images. */}}

{{/* A name with a limited length. Two long names with the same beginning stay different. (dict "name" "…" "most" 40) */}}
{{- define "delayq.short" -}}
{{- if gt (len .name) .most -}}
{{- printf "%s-%s" (.name | trunc (int (sub .most 9)) | trimSuffix "-") (.name | sha256sum | trunc 8) -}}
{{- else -}}
{{- .name -}}
{{- end -}}
{{- end }}

{{- define "delayq.name" -}}
{{- include "delayq.short" (dict "name" (default .Chart.Name .Values.nameOverride) "most" 40) -}}
{{- end }}

{{- define "delayq.fullname" -}}
{{- $name := include "delayq.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- include "delayq.short" (dict "name" .Values.fullnameOverride "most" 40) -}}
{{- else if contains $name .Release.Name -}}
{{- include "delayq.short" (dict "name" .Release.Name "most" 40) -}}
{{- else -}}
{{- include "delayq.short" (dict "name" (printf "%s-%s" .Release.Name $name) "most" 40) -}}
{{- end -}}
{{- end }}

{{- define "delayq.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "delayq.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end }}

{{/* The labels that select the pods of a component: (dict "root" $ "component" "api"). */}}
{{- define "delayq.selector" -}}
app.kubernetes.io/name: {{ include "delayq.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "delayq.labels" -}}
{{ include "delayq.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: delayq
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Name, namespace and labels of an object: (dict "root" $ "component" "api" "name" "delayq-api"). */}}
{{- define "delayq.metadata" -}}
name: {{ .name | quote }}
namespace: {{ .root.Release.Namespace | quote }}
labels:
  {{- include "delayq.labels" . | nindent 2 }}
{{- end }}

{{/* (dict "root" $ "image" .Values.image) */}}
{{- define "delayq.image" -}}
{{- if .image.digest -}}
{{ printf "%s@%s" .image.repository .image.digest | quote }}
{{- else -}}
{{ printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) | quote }}
{{- end -}}
{{- end }}

{{/* Where pods of this cluster find the API. */}}
{{- define "delayq.url" -}}
http://{{ include "delayq.fullname" . }}.{{ .Release.Namespace }}.svc:{{ .Values.api.service.port }}
{{- end }}
