{{/* Names, labels and images. */}}

{{- define "delayq.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "delayq.fullname" -}}
{{- $name := include "delayq.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "delayq.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "delayq.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end }}

{{/* What selects the pods of a component: (dict "root" $ "component" "api"). */}}
{{- define "delayq.selector" -}}
app.kubernetes.io/name: {{ include "delayq.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
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
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "delayq.labels" . | nindent 2 }}
{{- end }}

{{/* (dict "root" $ "image" .Values.image) */}}
{{- define "delayq.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Where pods of this cluster find the API. */}}
{{- define "delayq.url" -}}
http://{{ include "delayq.fullname" . }}.{{ .Release.Namespace }}.svc:{{ .Values.api.service.port }}
{{- end }}
