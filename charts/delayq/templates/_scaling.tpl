{{/* Both take (dict "root" $ "component" "api" "of" .Values.api "name" "delayq-api"). */}}

{{- define "delayq.autoscaler" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "delayq.metadata" . | nindent 2 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .name }}}
  minReplicas: {{ .of.autoscaling.minReplicas }}
  maxReplicas: {{ .of.autoscaling.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target: {type: Utilization, averageUtilization: {{ .of.autoscaling.cpu }}}
  behavior:
    {{- include "delayq.behavior" .component | nindent 4 }}
{{- end }}

{{/* Each added or removed worker moves queues, and that takes a moment. So the scaling is slow and does not oscillate. */}}
{{- define "delayq.behavior" -}}
scaleUp:
  stabilizationWindowSeconds: {{ eq . "workers" | ternary 30 0 }}
  policies:
    - {type: Percent, value: 100, periodSeconds: 30}
    - {type: Pods, value: 2, periodSeconds: 30}
scaleDown:
  stabilizationWindowSeconds: 300
  policies:
    - {type: Pods, value: 1, periodSeconds: 60}
{{- end }}

{{- define "delayq.podDisruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "delayq.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ .of.podDisruptionBudget.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow # while Redis is away none is ready, and nodes can be drained all the same
  selector:
    matchLabels:
      {{- include "delayq.selector" . | nindent 6 }}
{{- end }}
