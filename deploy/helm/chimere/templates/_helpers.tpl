{{- define "chimere.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "chimere.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "chimere.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "chimere.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "chimere.selector" -}}
app.kubernetes.io/name: {{ include "chimere.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "chimere.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{ include "chimere.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "chimere.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "chimere.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "chimere.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "chimere.isScaled" -}}
{{- if or .Values.keda.enabled .Values.hpa.enabled (gt (int .Values.replicaCount) 1) -}}yes{{- end -}}
{{- end -}}

{{- /* A new pod that waits for a claim which the old pod has would wait forever. */ -}}
{{- define "chimere.strategy" -}}
{{- $once := false -}}
{{- range .Values.persistence -}}
{{- if and .enabled (hasPrefix "ReadWriteOnce" .accessMode) }}{{ $once = true }}{{ end -}}
{{- end -}}
{{- if ne .Values.strategy "auto" -}}
{{- .Values.strategy -}}
{{- else if or .Values.gpu.enabled $once -}}
Recreate
{{- else -}}
RollingUpdate
{{- end -}}
{{- end -}}

{{- define "chimere.scheme" -}}
{{- if .Values.tls.existingSecret -}}https{{- else -}}http{{- end -}}
{{- end -}}

{{- /* Seconds in which the model is read: 200 MiB a second; from a hub 10, and an hour if the size is not given. */ -}}
{{- define "chimere.loadSeconds" -}}
{{- if hasPrefix "hf:" .Values.model.uri -}}
{{- default 3600 (div (int .Values.model.sizeMiB) 10) -}}
{{- else -}}
{{- div (int .Values.model.sizeMiB) 200 -}}
{{- end -}}
{{- end -}}

{{- define "chimere.isMounted" -}}
{{- if or (hasPrefix "pvc://" .Values.model.uri) (hasPrefix "oci://" .Values.model.uri) -}}yes{{- end -}}
{{- end -}}

{{- define "chimere.model" -}}
{{- if eq .Values.model.uri "" -}}
nano
{{- else if hasPrefix "hf:" .Values.model.uri -}}
{{- .Values.model.uri -}}
{{- else -}}
{{- printf "/models/%s" .Values.model.file -}}
{{- end -}}
{{- end -}}

{{- /* What a schema cannot say. */ -}}
{{- define "chimere.check" -}}
{{- $uri := .Values.model.uri -}}
{{- if and $uri (not (hasPrefix "hf:" $uri)) (not (include "chimere.isMounted" .)) -}}
{{- fail (printf "model.uri: expected pvc://CLAIM, oci://REFERENCE or hf:OWNER/REPO:TYPE, got %q" $uri) -}}
{{- end -}}
{{- if and (include "chimere.isMounted" .) (not .Values.model.file) -}}
{{- fail "model.file: name the file within the volume of model.uri" -}}
{{- end -}}
{{- if and (hasPrefix "oci://" $uri) (semverCompare "<1.33.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "model.uri: oci:// needs image volumes, which Kubernetes has from 1.33; this cluster is %s: use pvc://" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and (hasPrefix "hf:" $uri) (not .Values.persistence.models.enabled) -}}
{{- fail "model.uri: hf: needs persistence.models.enabled, or each start fetches the model again" -}}
{{- end -}}
{{- $store := .Values.persistence.store -}}
{{- if and $store.enabled (include "chimere.isScaled" .) -}}
{{- fail "persistence.store: a store has one writer: keep replicaCount at 1 and autoscaling off, or leave it out" -}}
{{- end -}}
{{- range $name := list "host" "port" -}}
{{- if hasKey $.Values.config $name -}}
{{- fail (printf "config.%s: the chart sets it, for the probes and the service" $name) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress: name its hosts in ingress.hosts" -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) -}}
{{- fail "httpRoute: name the gateway in httpRoute.parentRefs, for example [{name: GATEWAY, namespace: NAMESPACE}]" -}}
{{- end -}}
{{- if and .Values.keda.enabled .Values.hpa.enabled -}}
{{- fail "keda, hpa: enable one of them" -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled (not .Values.metrics.open) (not .Values.serviceMonitor.keySecret.name) -}}
{{- fail "serviceMonitor: /metrics needs an administrator's key: set serviceMonitor.keySecret.name, or metrics.open" -}}
{{- end -}}
{{- if and .Values.inferencePool.enabled (not .Values.inferencePool.endpointPicker.name) -}}
{{- fail "inferencePool: name the service of the endpoint picker in inferencePool.endpointPicker.name" -}}
{{- end -}}
{{- if and .Values.night.enabled (not $store.enabled) -}}
{{- fail "night: needs persistence.store.enabled, which keeps what it learns" -}}
{{- end -}}
{{- end -}}

{{- define "chimere.config" -}}
{{- $name := include "chimere.fullname" . -}}
{{- $ns := .Release.Namespace -}}
{{- $hosts := list $name (printf "%s.%s" $name $ns) (printf "%s.%s.svc" $name $ns) (printf "%s.%s.svc.cluster.local" $name $ns) -}}
{{- $hosts = concat $hosts .Values.ingress.hosts .Values.httpRoute.hostnames | uniq -}}
{{- $c := dict "host" "0.0.0.0" "port" 8081 "model" (include "chimere.model" .) "state-dir" "/var/lib/chimere" "grace" 10 "log-json" true "verbose" true "allowed-host" $hosts "odo" .Values.odo.enabled -}}
{{- if .Values.model.name }}{{ $_ := set $c "name" .Values.model.name }}{{ end -}}
{{- if .Values.also }}{{ $_ := set $c "also" .Values.also }}{{ end -}}
{{- if hasPrefix "hf:" .Values.model.uri }}{{ $_ := set $c "models-dir" "/models" }}{{ end -}}
{{- if .Values.gpu.enabled }}{{ $_ := set $c "device" "cuda" }}{{ end -}}
{{- if .Values.apiKeys.existingSecret }}{{ $_ := set $c "api-key" (printf "/etc/chimere-keys/%s" .Values.apiKeys.key) }}{{ end -}}
{{- if .Values.persistence.states.enabled }}{{ $_ := set $c "shared-states" "/var/lib/chimere-states" }}{{ end -}}
{{- if .Values.night.enabled }}{{ $_ := set $c "night" true }}{{ end -}}
{{- if .Values.tls.existingSecret }}{{ $_ := set $c "tls-cert" "/etc/chimere-tls/tls.crt" }}{{ $_ := set $c "tls-key" "/etc/chimere-tls/tls.key" }}{{ end -}}
{{- if .Values.metrics.open }}{{ $_ := set $c "metrics-open" true }}{{ end -}}
{{- if ne .Values.metrics.compat "none" }}{{ $_ := set $c "metrics-compat" .Values.metrics.compat }}{{ end -}}
{{- toYaml (mergeOverwrite $c .Values.config) -}}
{{- end -}}

{{- define "chimere.drain" -}}
{{- $args := list "chimere" "drain" "--url" (printf "%s://127.0.0.1:8081" (include "chimere.scheme" .)) "--wait" (printf "%v" .Values.grace) -}}
{{- if .Values.apiKeys.existingSecret -}}
{{- $args = concat $args (list "--api-key" (printf "/etc/chimere-keys/%s" .Values.apiKeys.key)) -}}
{{- end -}}
{{- toYaml $args -}}
{{- end -}}

{{- define "chimere.volumes" -}}
- name: config
  configMap: {name: {{ include "chimere.fullname" . }}}
- name: tmp
  emptyDir: {medium: Memory, sizeLimit: 256Mi}
- name: store
{{- if .Values.persistence.store.enabled }}
  persistentVolumeClaim: {claimName: {{ default (printf "%s-store" (include "chimere.fullname" .)) .Values.persistence.store.existingClaim }}}
{{- else }}
  emptyDir: {sizeLimit: 20Gi}
{{- end }}
{{- if .Values.persistence.states.enabled }}
- name: states
  persistentVolumeClaim: {claimName: {{ default (printf "%s-states" (include "chimere.fullname" .)) .Values.persistence.states.existingClaim }}}
{{- end }}
{{- if hasPrefix "pvc://" .Values.model.uri }}
- name: models
  persistentVolumeClaim: {claimName: {{ trimPrefix "pvc://" .Values.model.uri | quote }}, readOnly: true}
{{- else if hasPrefix "oci://" .Values.model.uri }}
- name: models
  image: {reference: {{ trimPrefix "oci://" .Values.model.uri | quote }}, pullPolicy: IfNotPresent}
{{- else if .Values.persistence.models.enabled }}
- name: models
  persistentVolumeClaim: {claimName: {{ default (printf "%s-models" (include "chimere.fullname" .)) .Values.persistence.models.existingClaim }}}
{{- end }}
{{- if .Values.apiKeys.existingSecret }}
- name: keys
  secret: {secretName: {{ .Values.apiKeys.existingSecret }}, defaultMode: 0440}
{{- end }}
{{- if .Values.tls.existingSecret }}
- name: tls
  secret: {secretName: {{ .Values.tls.existingSecret }}, defaultMode: 0440}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "chimere.mounts" -}}
- {name: config, mountPath: /etc/chimere, readOnly: true}
- {name: tmp, mountPath: /tmp}
- {name: store, mountPath: /var/lib/chimere}
{{- if .Values.persistence.states.enabled }}
- {name: states, mountPath: /var/lib/chimere-states}
{{- end }}
{{- if include "chimere.isMounted" . }}
- name: models
  mountPath: /models
  readOnly: true
{{- if and .Values.model.subPath (hasPrefix "pvc://" .Values.model.uri) }}
  subPath: {{ .Values.model.subPath | quote }}
{{- end }}
{{- else if .Values.persistence.models.enabled }}
- {name: models, mountPath: /models}
{{- end }}
{{- if .Values.apiKeys.existingSecret }}
- {name: keys, mountPath: /etc/chimere-keys, readOnly: true}
{{- end }}
{{- if .Values.tls.existingSecret }}
- {name: tls, mountPath: /etc/chimere-tls, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}
