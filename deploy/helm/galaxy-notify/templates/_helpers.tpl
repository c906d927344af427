{{/* Names are cut at 63 characters, of which the test of a role needs up to 22. */}}
{{- define "galaxy-notify.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 41 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 41 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 41 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "galaxy-notify.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "galaxy-notify.labels" -}}
{{ include "galaxy-notify.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "galaxy-notify.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "galaxy-notify.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* A digest says exactly what runs; a tag may be moved. */}}
{{- define "galaxy-notify.image" -}}
{{- with .Values.image.digest -}}
{{ $.Values.image.repository }}@{{ . }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}

{{/*
Who reads which secret: roles, `codec` for the codec server, and `setup` for the Job; `all` are all but `codec`. Names that end in _FILE are certificates
and keys; the others are mounted under NOTIFICATION_…_FILE. What is not here is mounted for nobody.
*/}}
{{- define "galaxy-notify.readers" -}}
NOTIFICATION_REDIS_PASSWORD: [all]
NOTIFICATION_REDIS_SENTINEL_PASSWORD: [all]
NOTIFICATION_POSTGRES_PRIMARY_DSN: [all]
NOTIFICATION_POSTGRES_OWNER_DSN: [setup]
NOTIFICATION_POSTGRES_REPLICA_DSNS: [intent, mobile-push, symbol-config, account-callback, subscription]
TEMPORAL_API_KEY: [all]
NOTIFICATION_PAYLOAD_KEYS: [all, codec]
OTEL_EXPORTER_OTLP_HEADERS: [intent, mobile-push, symbol-config, account-callback, subscription, codec]
NOTIFICATION_USER_SERVICE_TOKEN: [intent]
NOTIFICATION_HTTP_CA_FILE: [intent, symbol-config, account-callback]
NOTIFICATION_HTTP_CERT_FILE: [intent, symbol-config, account-callback]
NOTIFICATION_HTTP_KEY_FILE: [intent, symbol-config, account-callback]
NOTIFICATION_SYMBOL_TARGETS_SIGNING_SECRETS: [symbol-config]
NOTIFICATION_PORTFOLIO_SIGNING_SECRETS: [account-callback]
# The Job seals nothing with them, but its configuration is that of all roles.
NOTIFICATION_SUBSCRIPTION_KEYS: [subscription, setup]
{{- end }}

{{/* The secrets of a process, separated by commas. Takes the root as `root`, and a role or `setup` as `reader`. */}}
{{- define "galaxy-notify.secretsOf" -}}
{{- $reader := .reader }}
{{- $readers := include "galaxy-notify.readers" .root | fromYaml }}
{{- $given := .root.Values.secrets.variables }}
{{- if eq $reader "setup" }}
{{- $given = concat $given .root.Values.setup.secretVariables }}
{{- end }}
{{- $names := list }}
{{- range $name := uniq $given }}
{{- if not (hasKey $readers $name) }}
{{- fail (printf "secrets.variables: no process of this chart reads %s" $name) }}
{{- end }}
{{- $who := get $readers $name }}
{{- if or (has $reader $who) (and (has "all" $who) (ne $reader "codec")) }}{{ $names = append $names $name }}{{ end }}
{{- end }}
{{- join "," $names }}
{{- end }}

{{/* The Secret of a process: its own, or that of all. Takes the same as galaxy-notify.secretsOf. */}}
{{- define "galaxy-notify.secretName" -}}
{{- $values := .root.Values }}
{{- $own := get (merge (dict "setup" $values.setup "codec" $values.codecServer) $values.roles) .reader }}
{{- required "secrets.existingSecret is required: the passwords are in it" (default $values.secrets.existingSecret $own.existingSecret) }}
{{- end }}

{{/* The root, as the codec server sees it: certificates of servers, rules of egress and what an installation adds are left out. */}}
{{- define "galaxy-notify.withoutServers" -}}
{{- $values := deepCopy .Values }}
{{- range $name := list "temporalTls" "redisTls" "postgresTls" }}{{ $_ := set $values $name (dict) }}{{ end }}
{{- range $name := list "extraEnv" "extraVolumes" "extraVolumeMounts" "initContainers" }}{{ $_ := set $values $name (list) }}{{ end }}
{{- $_ := set $values.networkPolicy "egress" (list) }}
{{- $_ := set $values.networkPolicy "egressPorts" (list) }}
{{- dict "Values" $values "Chart" (dict "Name" .Chart.Name) "Release" (dict "Name" .Release.Name) | toYaml }}
{{- end }}

{{/* Nothing in the image needs a right, and nothing in it is written. */}}
{{- define "galaxy-notify.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "galaxy-notify.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/*
Environment of a process. Takes the root as `root`, the roles as `roles`, a role or `setup` as `reader`, and what one role
adds as `config`.
*/}}
{{- define "galaxy-notify.env" -}}
{{- $root := .root }}
{{- $values := $root.Values }}
{{- $config := merge (dict) (default (dict) .config) $values.config }}
- name: NODE_ENV
  value: production
- name: NOTIFICATION_ROLES
  value: {{ join "," .roles | quote }}
- name: NOTIFICATION_INTERNAL_HTTP_ADDR
  value: 0.0.0.0:8092
{{- range $name, $value := $config }}
{{- if ne (toString $value) "" }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- range compact (splitList "," (include "galaxy-notify.secretsOf" .)) }}
- name: {{ . }}{{ if not (hasSuffix "_FILE" .) }}_FILE{{ end }}
  value: /etc/galaxy-notify/secrets/{{ . }}
{{- end }}
{{- if $values.temporalTls.existingSecret }}
- name: TEMPORAL_TLS_CLIENT_CERT_PATH
  value: /etc/galaxy-notify/temporal-tls/tls.crt
- name: TEMPORAL_TLS_CLIENT_KEY_PATH
  value: /etc/galaxy-notify/temporal-tls/tls.key
{{- if $values.temporalTls.serverCa }}
- name: TEMPORAL_TLS_SERVER_CA_CERT_PATH
  value: /etc/galaxy-notify/temporal-tls/ca.crt
{{- end }}
{{- end }}
{{- if $values.redisTls.existingSecret }}
{{- if $values.redisTls.serverCa }}
- name: NOTIFICATION_REDIS_CA_FILE
  value: /etc/galaxy-notify/redis-tls/ca.crt
{{- end }}
{{- if $values.redisTls.clientCertificate }}
- name: NOTIFICATION_REDIS_CERT_FILE
  value: /etc/galaxy-notify/redis-tls/tls.crt
- name: NOTIFICATION_REDIS_KEY_FILE
  value: /etc/galaxy-notify/redis-tls/tls.key
{{- end }}
{{- end }}
{{- if has "mobile-push" .files }}
- name: GOOGLE_APPLICATION_CREDENTIALS
  value: /etc/galaxy-notify/fcm/{{ $values.fcm.key }}
{{- end }}
{{- if has "symbol-config" .files }}
- name: NOTIFICATION_SYMBOL_TARGETS_FILE
  value: /etc/galaxy-notify/symbol-targets/targets.json
{{- end }}
{{- with $values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Empty: nothing of redisTls is used. */}}
{{- define "galaxy-notify.hasRedisTls" -}}
{{- with .Values.redisTls }}
{{- if and .existingSecret (or .serverCa .clientCertificate) }}yes{{ end }}
{{- end }}
{{- end }}

{{/* Takes the same as galaxy-notify.env. A file that only a role reads is mounted for that role. */}}
{{- define "galaxy-notify.volumeMounts" -}}
{{- $values := .root.Values }}
- name: tmp
  mountPath: /tmp
- name: secrets
  mountPath: /etc/galaxy-notify/secrets
  readOnly: true
{{- if $values.temporalTls.existingSecret }}
- name: temporal-tls
  mountPath: /etc/galaxy-notify/temporal-tls
  readOnly: true
{{- end }}
{{- if include "galaxy-notify.hasRedisTls" .root }}
- name: redis-tls
  mountPath: /etc/galaxy-notify/redis-tls
  readOnly: true
{{- end }}
{{- if $values.postgresTls.existingSecret }}
- name: postgres-tls
  mountPath: /etc/galaxy-notify/postgres-tls
  readOnly: true
{{- end }}
{{- if has "mobile-push" .files }}
- name: fcm
  mountPath: /etc/galaxy-notify/fcm
  readOnly: true
{{- end }}
{{- if has "symbol-config" .files }}
- name: symbol-targets
  mountPath: /etc/galaxy-notify/symbol-targets
  readOnly: true
{{- end }}
{{- with $values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "galaxy-notify.volumes" -}}
{{- $values := .root.Values }}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
- name: secrets
  secret:
    secretName: {{ include "galaxy-notify.secretName" . }}
    defaultMode: 0440
    items:
      {{- range compact (splitList "," (include "galaxy-notify.secretsOf" .)) }}
      - key: {{ . }}
        path: {{ . }}
      {{- end }}
{{- if $values.temporalTls.existingSecret }}
- name: temporal-tls
  secret:
    secretName: {{ $values.temporalTls.existingSecret }}
    defaultMode: 0440
    items:
      - { key: tls.crt, path: tls.crt }
      - { key: tls.key, path: tls.key }
      {{- if $values.temporalTls.serverCa }}
      - { key: ca.crt, path: ca.crt }
      {{- end }}
{{- end }}
{{- if include "galaxy-notify.hasRedisTls" .root }}
- name: redis-tls
  secret:
    secretName: {{ $values.redisTls.existingSecret }}
    defaultMode: 0440
    items:
      {{- if $values.redisTls.serverCa }}
      - { key: ca.crt, path: ca.crt }
      {{- end }}
      {{- if $values.redisTls.clientCertificate }}
      - { key: tls.crt, path: tls.crt }
      - { key: tls.key, path: tls.key }
      {{- end }}
{{- end }}
{{- if $values.postgresTls.existingSecret }}
- name: postgres-tls
  secret:
    secretName: {{ $values.postgresTls.existingSecret }}
    defaultMode: 0440
{{- end }}
{{- if has "mobile-push" .files }}
- name: fcm
  secret:
    secretName: {{ required "fcm.existingSecret is required by the role mobile-push" $values.fcm.existingSecret }}
    defaultMode: 0440
    items:
      - { key: {{ $values.fcm.key }}, path: {{ $values.fcm.key }} }
{{- end }}
{{- if has "symbol-config" .files }}
- name: symbol-targets
  configMap:
    name: {{ include "galaxy-notify.fullname" .root }}-symbol-targets
{{- end }}
{{- with $values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Names of the enabled roles, separated by commas. */}}
{{- define "galaxy-notify.roles" -}}
{{- $names := list }}
{{- range $name, $role := .Values.roles }}
{{- if $role.enabled }}{{ $names = append $names $name }}{{ end }}
{{- end }}
{{- join "," $names }}
{{- end }}
