{{/* What the pods of API, workers and backfill have in common. */}}

{{/* The settings that all of them share. */}}
{{- define "delayq.env" -}}
- name: DELAYQ_REDIS_URL
  {{- if .Values.redis.url }}
  value: {{ .Values.redis.url | quote }}
  {{- else }}
  valueFrom:
    secretKeyRef: {name: {{ .Values.redis.existingSecret }}, key: {{ .Values.redis.secretKey }}}
  {{- end }}
{{- if .Values.zookeeper.hosts }}
- name: DELAYQ_ZOOKEEPER
  value: {{ .Values.zookeeper.hosts | quote }}
- name: DELAYQ_ZOOKEEPER_ROOT
  value: {{ .Values.zookeeper.root | quote }}
{{- end }}
{{- if or .Values.routes.table .Values.routes.existingSecret }}
- name: DELAYQ_ROUTES
  value: /etc/delayq/routes/{{ .Values.routes.secretKey }}
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ kindIs "string" $value | ternary $value (int64 $value) | quote }}
{{- end }}
{{- range $name, $from := .Values.secretSettings }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef: {name: {{ $from.secret }}, key: {{ $from.key }}}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "delayq.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if or .Values.routes.table .Values.routes.existingSecret }}
- {name: routes, mountPath: /etc/delayq/routes, readOnly: true}
{{- end }}
{{- with .Values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "delayq.volumes" -}}
{{- if .Values.routes.table }}
- name: routes
  configMap: {name: {{ include "delayq.fullname" . }}-routes}
{{- else if .Values.routes.existingSecret }}
- name: routes
  secret: {secretName: {{ .Values.routes.existingSecret }}}
{{- end }}
{{- with .Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What every pod's spec begins with. Without links to Services: their variables might be taken for settings. */}}
{{- define "delayq.pod" -}}
serviceAccountName: {{ include "delayq.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- end }}

{{/* Where a component's pods may run: (dict "root" $ "component" "api" "of" .Values.api). */}}
{{- define "delayq.placement" -}}
{{- with .of.priorityClassName }}
priorityClassName: {{ . }}
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

{{/* (dict "of" .Values.api "port" "http"): where they look is fixed, how often is not. */}}
{{- define "delayq.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: {{ .port }}}
  {{- toYaml .of.startupProbe | nindent 2 }}
livenessProbe:
  httpGet: {path: /livez, port: {{ .port }}}
  {{- toYaml .of.livenessProbe | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: {{ .port }}}
  {{- toYaml .of.readinessProbe | nindent 2 }}
{{- end }}

{{- define "delayq.preStop" -}}
{{- if . }}
lifecycle:
  preStop:
    sleep: {seconds: {{ . }}}
{{- end }}
{{- end }}
