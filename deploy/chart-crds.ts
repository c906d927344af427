/**
 * Holds the documents of a rendered chart that are not Kubernetes' own against the CRDs of those whose they are. An API server
 * drops what a CRD does not know without a word; here it is a fault. Rules in CEL are not evaluated. Used by validate.sh:
 * `node deploy/chart-crds.ts RENDERED CRD…`.
 */
import { readFileSync } from 'node:fs';
import type { ErrorObject } from 'ajv';
import { Ajv } from 'ajv';
import { parseAllDocuments } from 'yaml';

interface Schema {
  pattern?: string;
  properties?: Record<string, Schema>;
  items?: Schema;
  additionalProperties?: Schema | boolean;
  'x-kubernetes-preserve-unknown-fields'?: boolean;
}

interface Crd {
  kind: 'CustomResourceDefinition';
  spec: {
    group: string;
    names: { kind: string };
    versions: { name: string; schema: { openAPIV3Schema: Schema } }[];
  };
}

interface Resource {
  apiVersion: string;
  kind: string;
  metadata: { name: string };
}

/** Groups of Kubernetes' own kinds, which kubernetes-validate knows. */
const OWN_GROUP = /^(v1|(apps|batch|policy|autoscaling)\/\w+|[\w.]+\.k8s\.io\/\w+)$/;

const documentsOf = (file: string): unknown[] =>
  parseAllDocuments(readFileSync(file, 'utf8')).flatMap((document) => (document.toJS() as unknown) ?? []);

/** The same schema, which refuses what it does not name. Patterns with flags are Go's alone, and left out. */
function closed({ pattern, ...schema }: Schema): Schema {
  const { properties, items, additionalProperties } = schema;
  const isOpen =
    schema['x-kubernetes-preserve-unknown-fields'] === true || additionalProperties !== undefined;
  return {
    ...schema,
    ...(pattern === undefined || pattern.includes('(?i)') ? {} : { pattern }),
    ...(properties && {
      properties: Object.fromEntries(
        Object.entries(properties).map(([name, inner]) => [name, closed(inner)]),
      ),
      ...(isOpen ? {} : { additionalProperties: false }),
    }),
    ...(items && { items: closed(items) }),
    ...(typeof additionalProperties === 'object' && { additionalProperties: closed(additionalProperties) }),
  };
}

const textOf = ({ instancePath, message, params }: ErrorObject): string =>
  `${instancePath} ${message} ${JSON.stringify(params)}`;

const [rendered, ...files] = process.argv.slice(2);
const ajv = new Ajv({ strict: false, validateFormats: false, allErrors: true });
const validators = new Map(
  (files.flatMap(documentsOf) as Crd[]).flatMap(({ spec }) =>
    spec.versions.map(({ name, schema }) => [
      `${spec.group}/${name} ${spec.names.kind}`,
      ajv.compile(closed(schema.openAPIV3Schema)),
    ]),
  ),
);
for (const resource of documentsOf(rendered!) as Resource[]) {
  const { apiVersion, kind, metadata } = resource;
  if (OWN_GROUP.test(apiVersion)) continue;
  const validate = validators.get(`${apiVersion} ${kind}`);
  if (validate?.(resource) === true) {
    console.log(`${kind} ${metadata.name}`);
    continue;
  }
  process.exitCode = 1;
  const problems = validate ? validate.errors!.map(textOf) : ['no CRD is known for it'];
  console.error([`${kind} ${metadata.name}:`, ...problems].join('\n  '));
}
