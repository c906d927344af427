{{/* Names are cut at 63 characters, of which a role needs up to 17. */}}
{{- define "galaxy-notify.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 45 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 45 | trimSuffix "-" }}
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
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "galaxy-notify.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "galaxy-notify.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "galaxy-notify.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
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
Environment of a process. Takes the root as `root`, the roles as `roles`, what one role adds as `config`, and secret
variables that others do not get as `secretVariables`.
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
{{- range concat $values.secrets.variables (default (list) .secretVariables) }}
- name: {{ . }}_FILE
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
{{- if has "mobile-push" .roles }}
- name: GOOGLE_APPLICATION_CREDENTIALS
  value: /etc/galaxy-notify/fcm/{{ $values.fcm.key }}
{{- end }}
{{- if has "symbol-config" .roles }}
- name: NOTIFICATION_SYMBOL_TARGETS_FILE
  value: /etc/galaxy-notify/symbol-targets/targets.json
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
{{- if $values.redisTls.existingSecret }}
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
{{- end }}

{{- define "galaxy-notify.volumes" -}}
{{- $values := .root.Values }}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
- name: secrets
  secret:
    secretName: {{ required "secrets.existingSecret is required: the passwords are in it" $values.secrets.existingSecret }}
    defaultMode: 0440
    items:
      {{- range concat $values.secrets.variables (default (list) .secretVariables) }}
      - key: {{ . }}
        path: {{ . }}
      {{- end }}
{{- if $values.temporalTls.existingSecret }}
- name: temporal-tls
  secret:
    secretName: {{ $values.temporalTls.existingSecret }}
    defaultMode: 0440
{{- end }}
{{- if $values.redisTls.existingSecret }}
- name: redis-tls
  secret:
    secretName: {{ $values.redisTls.existingSecret }}
    defaultMode: 0440
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
{{- end }}
{{- if has "symbol-config" .files }}
- name: symbol-targets
  configMap:
    name: {{ include "galaxy-notify.fullname" .root }}-symbol-targets
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
