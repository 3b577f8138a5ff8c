{{/* What values.schema.json cannot say: each ends the rendering with a sentence that says how to mend it. */}}

{{- define "delayq.checks" -}}
{{- include "delayq.checks.stores" . -}}
{{- include "delayq.checks.access" . -}}
{{- include "delayq.checks.workers" . -}}
{{- include "delayq.checks.ends" . -}}
{{- include "delayq.checks.routes" . -}}
{{- include "delayq.checks.names" . -}}
{{- end }}

{{- define "delayq.checks.stores" -}}
{{- $redis := .Values.redis -}}
{{- if not (or $redis.url $redis.existingSecret) -}}
{{- fail "redis: delayq keeps everything in a Redis of yours: give redis.url, or redis.existingSecret with its URL" -}}
{{- end -}}
{{- if and $redis.url $redis.existingSecret -}}
{{- fail "redis: give redis.url or redis.existingSecret, not both" -}}
{{- end -}}
{{- if or (regexMatch "://[^/?]*@" $redis.url) (contains "password=" $redis.url) -}}
{{- fail "redis.url: a password belongs into a secret: put the URL into one, and name it by redis.existingSecret" -}}
{{- end -}}
{{- end }}

{{- define "delayq.checks.access" -}}
{{- $api := .Values.api -}}
{{- if not (or $api.keys.existingSecret $api.open) -}}
{{- fail "api: others can reach it, and there are no keys: name a secret with the file of keys by api.keys.existingSecret (delayq api-keys new makes one), or set api.open=yes-without-keys" -}}
{{- end -}}
{{- if and $api.keys.existingSecret $api.open -}}
{{- fail "api: it takes keys (api.keys.existingSecret) or is open (api.open), not both" -}}
{{- end -}}
{{- if and $api.keys.existingSecret (not .Values.reader.existingSecret) -}}
{{- if eq .Values.workers.autoscaling.by "backlog" -}}
{{- fail "reader.existingSecret: KEDA needs a key that may read '*', to ask the API for the backlog" -}}
{{- end -}}
{{- if .Values.metrics.serviceMonitor.enabled -}}
{{- fail "reader.existingSecret: Prometheus needs a key that may read '*', to ask the API for its metrics" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "delayq.checks.workers" -}}
{{- $workers := .Values.workers -}}
{{- $scaling := $workers.autoscaling -}}
{{- if and (not .Values.zookeeper.hosts) (or (ne $scaling.by "none") (gt (int $workers.replicas) 1)) -}}
{{- fail "zookeeper.hosts: several workers need a ZooKeeper, which spreads the queues; without one, leave workers.replicas 1 and workers.autoscaling.by none" -}}
{{- end -}}
{{- if and (ne $scaling.by "none") (gt (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- fail "workers.autoscaling: minReplicas is more than maxReplicas" -}}
{{- end -}}
{{- if and .Values.api.autoscaling.enabled (gt (int .Values.api.autoscaling.minReplicas) (int .Values.api.autoscaling.maxReplicas)) -}}
{{- fail "api.autoscaling: minReplicas is more than maxReplicas" -}}
{{- end -}}
{{- end }}

{{/* Kubernetes kills what has not ended by then. Beyond the drain a worker takes up to 10 s to close what it has open;
     the API lets requests finish for 8 s. */}}
{{- define "delayq.checks.ends" -}}
{{- $workers := .Values.workers -}}
{{- $needed := add $workers.preStopSeconds $workers.drainSeconds 10 -}}
{{- if lt (int $workers.terminationGracePeriodSeconds) (int $needed) -}}
{{- fail (printf "workers.terminationGracePeriodSeconds: a worker would be killed while it drains: it is %d, and preStopSeconds + drainSeconds + 10 are %d" (int $workers.terminationGracePeriodSeconds) $needed) -}}
{{- end -}}
{{- $needed = add .Values.api.preStopSeconds 10 -}}
{{- if lt (int .Values.api.terminationGracePeriodSeconds) (int $needed) -}}
{{- fail (printf "api.terminationGracePeriodSeconds: the API would be killed while requests finish: it is %d, and preStopSeconds + 10 are %d" (int .Values.api.terminationGracePeriodSeconds) $needed) -}}
{{- end -}}
{{- end }}

{{- define "delayq.checks.routes" -}}
{{- if and .Values.routes.table .Values.routes.existingSecret -}}
{{- fail "routes: give routes.table or routes.existingSecret, not both" -}}
{{- end -}}
{{- range .Values.routes.table -}}
{{- if regexMatch "://[^/?]*@" (.target | default "") -}}
{{- fail (printf "routes.table: the target of %s has a password in it: put the table into a secret, and name it by routes.existingSecret" .name) -}}
{{- end -}}
{{- range $option, $value := .options -}}
{{- $values := ternary $value (dict $option $value) (kindIs "map" $value) -}}
{{- range $name, $one := $values -}}
{{- if regexMatch "(?i)(password|secret|token|authorization|api-?key|key\\.pem)" $name -}}
{{- range (ternary $one (list $one) (kindIs "slice" $one)) -}}
{{- if not (regexMatch "^(env|file):" (toString .)) -}}
{{- fail (printf "routes.table: %s is a secret: write env:NAME, and give NAME by secretSettings; or put the table into a secret, and name it by routes.existingSecret" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := .Values.secretSettings -}}
{{- if hasKey $.Values.settings $name -}}
{{- fail (printf "%s: it stands in settings and in secretSettings" $name) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Kubernetes tells pods of a Service x by the variable X_PORT, which must not be a setting of delayq's clients. */}}
{{- define "delayq.checks.names" -}}
{{- $name := include "delayq.fullname" . -}}
{{- if has $name (list "delayq-api" "delayq-worker") -}}
{{- fail (printf "the Service would be called %s, and Kubernetes would give %s_PORT to other pods, which is a setting of delayq: choose another name of the release, or set fullnameOverride" $name ($name | upper | replace "-" "_")) -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.hosts: name a host" -}}
{{- end -}}
{{- if and .Values.backfill.enabled (not (and .Values.backfill.run .Values.backfill.source)) -}}
{{- fail "backfill: give it a name (backfill.run) and what to read (backfill.source)" -}}
{{- end -}}
{{- end }}
