/** The catalog in Python: payload classes, constructors, and the rows that validation reads. */
import type { Catalog, PayloadField, TypeSpec } from '../catalog.ts';
import { pascalCase } from '../catalog.ts';
import { LIMITS, noteOf } from './typescript.ts';

const TYPES = { string: 'str', integer: 'int', boolean: 'bool' };

const pythonName = (type: string): string => `new_${type.replaceAll('.', '_')}`;

const sentence = (note: string): string => `${note.charAt(0).toUpperCase()}${note.slice(1)}.`;

/** Optional fields follow the further ones: an optional field named `field` would hide the function that those need. */
function payloadClass({ type, fields }: TypeSpec): string[] {
  const membersOf = (areRequired: boolean) =>
    fields
      .filter(({ isRequired }) => isRequired === areRequired)
      .flatMap(({ name, field }) => [
        `    ${name}: ${TYPES[field.type]}${areRequired ? '' : ' | None = None'}`,
        ...(noteOf(field) === '' ? [] : [`    """${sentence(noteOf(field))}"""`]),
      ]);
  return [
    '@dataclass(frozen=True)',
    `class ${pascalCase(type)}Payload:`,
    `    """The payload of ${type}."""`,
    '',
    ...membersOf(true),
    '    further: Mapping[str, Any] = field(default_factory=dict)',
    '    """Further fields, which pass through to the mail template."""',
    ...membersOf(false),
    '',
    '',
  ];
}

/** What every constructor takes besides payload and recipients. */
const OPTIONS = {
  idempotency_key: 'str',
  occurred_at: 'datetime | int',
  deliver_at: 'datetime | int | None = None',
  expires_at: 'datetime | int | None = None',
  request_id: 'str | None = None',
  trace_id: 'str | None = None',
  traceparent: 'str | None = None',
};

function constructors({ type, summary, audiences }: TypeSpec): string[] {
  const constructor = (suffix: string, toUsers: boolean) => [
    `def ${pythonName(type)}${suffix}(`,
    `    payload: ${pascalCase(type)}Payload,`,
    '    *,',
    ...(toUsers ? ['    recipient_user_ids: Iterable[str],'] : []),
    ...Object.entries(OPTIONS).map(([name, form]) => `    ${name}: ${form},`),
    ') -> Intent:',
    `    """${summary}`,
    '',
    `    Raises InvalidIntentError for what the service would refuse.`,
    '    """',
    '    return new_intent(',
    '        CATALOG,',
    `        "${type}",`,
    `        "${toUsers ? 'user' : 'admin_email'}",`,
    '        payload,',
    `        recipient_user_ids=${toUsers ? 'recipient_user_ids' : 'None'},`,
    ...Object.keys(OPTIONS).map((name) => `        ${name}=${name},`),
    '    )',
    '',
    '',
  ];
  return audiences.flatMap((audience) =>
    audience === 'user'
      ? constructor('', true)
      : constructor(audiences.length === 1 ? '' : '_to_administrators', false),
  );
}

const tuple = (items: readonly string[]): string => `(${items.join(', ')}${items.length === 1 ? ',' : ''})`;

/** A form of JSON Schema as a literal. */
function formOf(field: PayloadField): string {
  const form = Object.entries(field).filter(([name]) => name !== 'description');
  const members = form.map(([name, value]) => `"${name}": ${JSON.stringify(value)}`);
  return `{${members.join(', ')}}`;
}

function rows({ types }: Catalog): string[] {
  return [
    'CATALOG: Catalog = {',
    ...[...types.values()].flatMap(({ type, producer, audiences, fields, isRetired }) => [
      `    "${type}": TypeSpec(`,
      `        producer="${producer}",`,
      `        audiences=${tuple(audiences.map((audience) => `"${audience}"`))},`,
      '        fields={',
      ...fields.map(({ name, field }) => `            "${name}": ${formOf(field)},`),
      '        },',
      `        required=${tuple(fields.flatMap(({ name, isRequired }) => (isRequired ? [`"${name}"`] : [])))},`,
      ...(isRetired ? ['        is_retired=True,'] : []),
      '    ),',
    ]),
    '}',
  ];
}

const GENERATED = 'Made from the catalog by galaxy-notify catalog clients.';

/**
 * @param isOwn whether the modules belong to a package of an installation, and not to the client itself.
 * @returns name and text of the modules.
 */
export function pythonFiles(catalog: Catalog, isOwn = true): [name: string, text: string][] {
  const types = [...catalog.types.values()];
  const client = isOwn ? 'notificationintent' : '';
  const names = types.flatMap(({ type, audiences }) => [
    `${pascalCase(type)}Payload`,
    pythonName(type),
    ...(audiences.length === 1 ? [] : [`${pythonName(type)}_to_administrators`]),
  ]);
  const constructorsFile = [
    `"""Payloads and constructors of all types. ${GENERATED}"""`,
    '',
    'from __future__ import annotations',
    '',
    'from collections.abc import Iterable, Mapping',
    'from dataclasses import dataclass, field',
    'from datetime import datetime',
    'from typing import Any',
    '',
    ...(isOwn
      ? ['from notificationintent import Intent, new_intent', '', 'from .catalog import CATALOG']
      : ['from .catalog import CATALOG', 'from .intent import Intent, new_intent']),
    '',
    '__all__ = [',
    ...names.map((name) => `    "${name}",`),
    ']',
    '',
    '',
    ...types.flatMap((spec) => [...payloadClass(spec), ...constructors(spec)]),
  ];
  const catalogFile = [
    `"""The catalog of types. ${GENERATED}"""`,
    '',
    `from ${client}.types import Catalog, TypeSpec`,
    '',
    ...rows(catalog),
  ];
  const limitsFile = [
    `"""What validation compares with. ${GENERATED}"""`,
    '',
    ...Object.entries(LIMITS).map(([name, value]) => `${name} = ${value}`),
  ];
  const text = (lines: readonly string[]) => `${lines.join('\n').trimEnd()}\n`;
  return [
    ['constructors.py', text(constructorsFile)],
    ['catalog.py', text(catalogFile)],
    isOwn ? ['__init__.py', ''] : ['limits.py', text(limitsFile)],
  ];
}
