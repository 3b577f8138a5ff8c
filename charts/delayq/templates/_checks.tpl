{{/* Rules that values.schema.json cannot express. Each stops the rendering with a sentence that names the remedy. */}}

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
{{- fail "redis: delayq needs a Redis: set redis.url, or redis.existingSecret with its URL" -}}
{{- end -}}
{{- if and $redis.url $redis.existingSecret -}}
{{- fail "redis: set redis.url or redis.existingSecret, not both" -}}
{{- end -}}
{{- if or (contains "@" ($redis.url | default "")) (include "delayq.secretIn" $redis.url) -}}
{{- fail "redis.url: a password belongs into a secret: put the URL into a secret, and name it in redis.existingSecret" -}}
{{- end -}}
{{- end }}

{{- define "delayq.checks.access" -}}
{{- $api := .Values.api -}}
{{- if not (or $api.keys.existingSecret $api.open) -}}
{{- fail "api: others can reach it without keys. Name a secret with a file of keys in api.keys.existingSecret (delayq api-keys new creates a key), or set api.open=yes-without-keys" -}}
{{- end -}}
{{- if and $api.keys.existingSecret $api.open -}}
{{- fail "api: set api.keys.existingSecret or api.open, not both" -}}
{{- end -}}
{{- if and $api.keys.existingSecret (not .Values.reader.existingSecret) -}}
{{- if eq .Values.workers.autoscaling.by "backlog" -}}
{{- fail "reader.existingSecret: KEDA needs a key that may read '*', for the backlog" -}}
{{- end -}}
{{- if .Values.metrics.serviceMonitor.enabled -}}
{{- fail "reader.existingSecret: Prometheus needs a key that may read '*', for the metrics of the API" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "delayq.checks.workers" -}}
{{- $workers := .Values.workers -}}
{{- $scaling := $workers.autoscaling -}}
{{- if and (not .Values.zookeeper.hosts) (or (ne $scaling.by "none") (gt (int $workers.replicas) 1)) -}}
{{- fail "zookeeper.hosts: several workers need a ZooKeeper. Set it, or use workers.replicas=1 and workers.autoscaling.by=none" -}}
{{- end -}}
{{- if and (ne $scaling.by "none") (gt (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- fail "workers.autoscaling: minReplicas is greater than maxReplicas" -}}
{{- end -}}
{{- if and .Values.api.autoscaling.enabled (gt (int .Values.api.autoscaling.minReplicas) (int .Values.api.autoscaling.maxReplicas)) -}}
{{- fail "api.autoscaling: minReplicas is greater than maxReplicas" -}}
{{- end -}}
{{- end }}

{{/* Kubernetes kills a pod after the grace period. After its drain a worker needs up to 10 s to close its connections. The API
     finishes its requests within 8 s. */}}
{{- define "delayq.checks.ends" -}}
{{- $workers := .Values.workers -}}
{{- $needed := add $workers.preStopSeconds $workers.drainSeconds 10 -}}
{{- if lt (int $workers.terminationGracePeriodSeconds) (int $needed) -}}
{{- fail (printf "workers.terminationGracePeriodSeconds: a worker would be killed during its drain. The value is %d: set at least preStopSeconds + drainSeconds + 10 = %d" (int $workers.terminationGracePeriodSeconds) $needed) -}}
{{- end -}}
{{- $needed = add .Values.api.preStopSeconds 10 -}}
{{- if lt (int .Values.api.terminationGracePeriodSeconds) (int $needed) -}}
{{- fail (printf "api.terminationGracePeriodSeconds: the API would be killed before its requests finish. The value is %d: set at least preStopSeconds + 10 = %d" (int .Values.api.terminationGracePeriodSeconds) $needed) -}}
{{- end -}}
{{- end }}

{{- define "delayq.checks.routes" -}}
{{- if and .Values.routes.table .Values.routes.existingSecret -}}
{{- fail "routes: set routes.table or routes.existingSecret, not both" -}}
{{- end -}}
{{- range .Values.routes.table -}}
{{- $target := .target | default "" -}}
{{- if or (regexMatch "://[^/?#]*@" $target) (and (contains "@" $target) (not (hasPrefix "http" $target))) (include "delayq.secretIn" $target) -}}
{{- fail (printf "routes.table: the target of %s has a password in it: put the table into a secret, and name it in routes.existingSecret" .name) -}}
{{- end -}}
{{- $found := include "delayq.secretOf" (dict "name" "" "value" (omit . "target")) -}}
{{- if $found -}}
{{- fail (printf "routes.table: %s is a secret: write env:NAME and set NAME in secretSettings. Or put the table into a secret, and name it in routes.existingSecret" $found) -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := .Values.secretSettings -}}
{{- if hasKey ($.Values.settings | default dict) $name -}}
{{- fail (printf "%s: set it in settings or in secretSettings, not both" $name) -}}
{{- end -}}
{{- end -}}
{{- $found := include "delayq.secretOf" (dict "name" "" "value" .Values.settings) -}}
{{- if $found -}}
{{- fail (printf "settings: %s is a secret: set it in secretSettings" $found) -}}
{{- end -}}
{{- range $list := list .Values.env .Values.api.env .Values.workers.env .Values.backfill.env -}}
{{- range $list -}}
{{- $found := include "delayq.secretOf" (dict "name" .name "value" .value) -}}
{{- if $found -}}
{{- fail (printf "env: %s is a secret: set it in secretSettings, or with valueFrom" $found) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $values := list .Values .Values.api .Values.workers -}}
{{- range concat ($values.initContainers | default list) ($values.sidecars | default list) -}}
{{- $container := .name | default "" -}}
{{- $found := include "delayq.secretOf" (dict "name" "its command line" "value" (concat (.command | default list) (.args | default list))) -}}
{{- range .env -}}
{{- $found = $found | default (include "delayq.secretOf" (dict "name" .name "value" .value)) -}}
{{- end -}}
{{- if $found -}}
{{- fail (printf "container %s: %s is a secret: set it with valueFrom or envFrom" $container $found) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $before := "" -}}
{{- range prepend (.Values.backfill.arguments | default list) (.Values.backfill.source | default "") -}}
{{- $option := or (eq $before "--option") (eq $before "--conf") (hasPrefix "--option=" .) (hasPrefix "--conf=" .) -}}
{{- $before = . -}}
{{- $name := regexReplaceAll "^--(option|conf)=" . "" | regexFind "^[^=]*" -}}
{{- if or (include "delayq.secretIn" .) (and $option (include "delayq.isSecret" $name)) -}}
{{- fail "backfill: its source and arguments can be read in the pod, and a password is among them: set it in secretSettings" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Whether a text contains a secret: a password before the host of a URL, or in its query or fragment. */}}
{{- define "delayq.secretIn" -}}
{{- $text := . | default "" | toString -}}
{{- if regexMatch "://[^/?#]*:[^/?#]*@" $text -}}yes{{- end -}}
{{- range regexFindAll "[?&;#][^=&;#]+=[^&;#]" $text -1 -}}
{{- $name := regexReplaceAll "^.|=.*$" . "" -}}
{{- if or (include "delayq.isSecret" $name) (regexMatch "(?i)^(key|code|sig|pass|pw|jwt|bearer)$" $name) -}}yes{{- end -}}
{{- end -}}
{{- end }}

{{/* Whether a setting, option or header of this name holds a secret. A name that ends in a place
     names the location of a secret. */}}
{{- define "delayq.isSecret" -}}
{{- $words := "passw(or)?d|passphrase|pwd|secret|token|signature|credential|authorization|cookie|(api|access|account|private|shared|subscription|functions)[-_.]?key|key[-_.]?pem|(^|[-_.])auth$" -}}
{{- $places := "(url|uri|endpoint|location|path|file|name)$" -}}
{{- $ids := "^access[-_.]?key([-_.]?id)?$" -}}
{{- $name := toString . -}}
{{- if and (regexMatch (printf "(?i)(%s)" $words) $name) (not (regexMatch (printf "(?i)(%s|%s)" $places $ids) $name)) -}}yes{{- end -}}
{{- end }}

{{/* The first name in values of any depth whose value is a secret and not a place of one: (dict "name" "options" "value" …). */}}
{{- define "delayq.secretOf" -}}
{{- $name := .name -}}
{{- $found := "" -}}
{{- if kindIs "map" .value -}}
{{- range $inner, $value := .value -}}
{{- if not $found -}}{{- $found = include "delayq.secretOf" (dict "name" $inner "value" $value) -}}{{- end -}}
{{- end -}}
{{- else if kindIs "slice" .value -}}
{{- range $value := .value -}}
{{- if not $found -}}{{- $found = include "delayq.secretOf" (dict "name" $name "value" $value) -}}{{- end -}}
{{- end -}}
{{- else if and .value (not (regexMatch "^(env|file):" (toString .value))) -}}
{{- $text := toString .value -}}
{{- if not (contains "://" $text) -}}{{- $text = printf "&%s" $text | replace "," "&" | replace " " "&" -}}{{- end -}}
{{- if or (include "delayq.isSecret" $name) (include "delayq.secretIn" $text) -}}{{- $found = $name -}}{{- end -}}
{{- end -}}
{{- $found -}}
{{- end }}

{{/* Kubernetes gives pods the variable X_PORT for a Service x. It must not be a setting of delayq's clients. */}}
{{- define "delayq.checks.names" -}}
{{- $name := include "delayq.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "the Service would be called %s, and Kubernetes refuses that name. Choose a name of a-z 0-9 - that begins with a letter: rename the release, or set fullnameOverride" $name) -}}
{{- end -}}
{{- if has $name (list "delayq-api" "delayq-worker") -}}
{{- fail (printf "the Service would be called %s. Kubernetes would give %s_PORT to other pods, and delayq would read it as a setting. Rename the release, or set fullnameOverride" $name ($name | upper | replace "-" "_")) -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.hosts: name a host" -}}
{{- end -}}
{{- if and .Values.backfill.enabled (not (and .Values.backfill.run .Values.backfill.source)) -}}
{{- fail "backfill: set a name (backfill.run) and a table (backfill.source)" -}}
{{- end -}}
{{- end }}
