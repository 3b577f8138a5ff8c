{{/* The common parts of the pods of API, workers and backfill. */}}

{{/* The settings that all of them share. */}}
{{- define "delayq.env" -}}
- name: DELAYQ_REDIS_URL
  {{- if .Values.redis.url }}
  value: {{ .Values.redis.url | quote }}
  {{- else }}
  valueFrom:
    secretKeyRef: {name: {{ .Values.redis.existingSecret | quote }}, key: {{ .Values.redis.secretKey | quote }}}
  {{- end }}
{{- if .Values.zookeeper.hosts }}
- name: DELAYQ_ZOOKEEPER
  value: {{ .Values.zookeeper.hosts | quote }}
{{- with .Values.zookeeper.root }}
- name: DELAYQ_ZOOKEEPER_ROOT
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- if or .Values.routes.table .Values.routes.existingSecret }}
- name: DELAYQ_ROUTES
  value: /etc/delayq/routes/{{ .Values.routes.secretKey }}
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name | quote }}
  value: {{ kindIs "string" $value | ternary $value (int64 $value) | quote }}
{{- end }}
{{- range $name, $from := .Values.secretSettings }}
- name: {{ $name | quote }}
  valueFrom:
    secretKeyRef: {name: {{ $from.secret | quote }}, key: {{ $from.key | quote }}}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A list from the values for all pods and from those of a component. It renders nothing if both are empty.
     (dict "root" $ "of" .Values.api "list" "volumes" "as" "volumes"): `as` is the field's name, or "" inside a list. */}}
{{- define "delayq.both" -}}
{{- $all := concat (get .root.Values .list | default list) (get .of .list | default list) -}}
{{- if and $all .as }}
{{ .as }}:
  {{- toYaml $all | nindent 2 }}
{{- else if $all }}
{{ toYaml $all }}
{{- end }}
{{- end }}

{{- define "delayq.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if or .Values.routes.table .Values.routes.existingSecret }}
- {name: routes, mountPath: /etc/delayq/routes, readOnly: true}
{{- end }}
{{- end }}

{{- define "delayq.volumes" -}}
{{- if .Values.routes.table }}
- name: routes
  configMap: {name: {{ printf "%s-routes" (include "delayq.fullname" .) | quote }}}
{{- else if .Values.routes.existingSecret }}
- name: routes
  secret: {secretName: {{ .Values.routes.existingSecret | quote }}}
{{- end }}
{{- end }}

{{/* The beginning of every pod's spec. It has no links to Services, because delayq might read their variables as settings. */}}
{{- define "delayq.pod" -}}
serviceAccountName: {{ include "delayq.serviceAccount" . | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The security context and the resources of a component's container: (dict "root" $ "of" .Values.api). */}}
{{- define "delayq.bounds" -}}
{{- with .root.Values.containerSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Pods are replaced one by one, unless the values differ. Merged values may have a `rollingUpdate` beside `Recreate`, and
     Kubernetes refuses that. (dict "given" .Values.api.strategy "type" "RollingUpdate") */}}
{{- define "delayq.strategy" -}}
{{- $given := .given | default dict -}}
{{- $rolling := $given.rollingUpdate -}}
{{- $type := $given.type | default (empty $rolling | ternary .type "RollingUpdate") -}}
type: {{ $type }}
{{- if eq $type "RollingUpdate" }}
{{- $both := mustMergeOverwrite (dict "maxSurge" 1 "maxUnavailable" 0) (deepCopy ($rolling | default dict)) }}
{{- if and (regexMatch "^0%?$" (toString $both.maxSurge)) (regexMatch "^0%?$" (toString $both.maxUnavailable)) }}
{{- fail "strategy.rollingUpdate: maxSurge and maxUnavailable are both 0, so no pod could be replaced: raise one of them" }}
{{- end }}
rollingUpdate: {maxSurge: {{ $both.maxSurge }}, maxUnavailable: {{ $both.maxUnavailable }}}
{{- end }}
{{- end }}

{{/* The nodes that a component's pods may use: (dict "root" $ "component" "api" "of" .Values.api). */}}
{{- define "delayq.placement" -}}
{{- with .of.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .of.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{- toYaml . | nindent 4 }}
    {{- if not .labelSelector }}
    labelSelector:
      matchLabels:
        {{- include "delayq.selector" $ | nindent 8 }}
    {{- end }}
  {{- end }}
{{- end }}
{{- with .of.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The annotations and labels of a component's pods: (dict "root" $ "component" "api" "of" .Values.api). */}}
{{- define "delayq.podMetadata" -}}
{{- if or .of.podAnnotations .root.Values.routes.table }}
annotations:
  {{- if .root.Values.routes.table }}
  checksum/routes: {{ .root.Values.routes.table | toJson | sha256sum }}
  {{- end }}
  {{- with .of.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
labels:
  {{- include "delayq.selector" . | nindent 2 }}
  {{- with .of.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* (dict "of" .Values.api "port" "http"): the values may change their times, not their paths. A probe that is null is omitted. */}}
{{- define "delayq.probes" -}}
{{- range $probe, $path := dict "startupProbe" "/livez" "livenessProbe" "/livez" "readinessProbe" "/readyz" }}
{{- with get $.of $probe }}
{{ $probe }}:
  httpGet: {path: {{ $path }}, port: {{ $.port }}}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- define "delayq.preStop" -}}
{{- if . }}
lifecycle:
  preStop:
    sleep: {seconds: {{ . }}}
{{- end }}
{{- end }}
