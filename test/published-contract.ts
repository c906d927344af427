/** A contract that `api/` publishes as a page of YAML, and what its schemas say about values. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { parse } from 'yaml';

/** @param file in `api/`. */
export function publishedContract<Document extends object>(file: string) {
  const document = parse(readFileSync(path.join(import.meta.dirname, '../api', file), 'utf8')) as Document;
  const ajv = new Ajv2020({ strict: false, allErrors: true, formats: { date: true } });
  ajv.addSchema(document, 'contract');
  return {
    document,
    /** What the schema at a place of the document says about a value; references in it are followed. */
    problems(pointer: readonly string[], value: unknown): string[] {
      const escaped = pointer.map((part) =>
        encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1')),
      );
      const validate = ajv.getSchema(`contract#/${escaped.join('/')}`);
      if (validate === undefined) throw new Error(`no ${pointer.join('/')} in ${file}`);
      return validate(value) === true
        ? []
        : (validate.errors ?? []).map((error) => `${error.instancePath} ${error.message}`);
    },
  };
}

/** A page of OpenAPI with one method for each path, whose body has examples. */
export interface BodyPage<Method extends string> {
  paths: Record<
    string,
    Record<
      Method,
      { requestBody: { content: { 'application/json': { examples: Record<string, { value: unknown }> } } } }
    >
  >;
}

export const schemaNamed = (name: string): string[] => ['components', 'schemas', name];
