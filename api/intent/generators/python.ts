/** The catalog in Python: payload classes, constructors, and the rows that validation reads. */
import { pascalCase } from '../catalog.ts';
import type { FieldKind, TypeContract } from './contract.ts';
import { LIMITS } from './contract.ts';

const KINDS: Record<FieldKind, { type: string; comment: string }> = {
  text: { type: 'str', comment: 'One line, not blank.' },
  lines: { type: 'str', comment: 'May have several lines, not blank.' },
  count: { type: 'int', comment: 'From 0.' },
  time: { type: 'int', comment: 'Unix milliseconds.' },
};

const pythonName = (type: string): string => `new_${type.replaceAll('.', '_')}`;

function payloadClass({ type, fields }: TypeContract): string[] {
  return [
    '@dataclass(frozen=True)',
    `class ${pascalCase(type)}Payload:`,
    `    """The payload of ${type}."""`,
    '',
    ...fields.flatMap(({ name, kind }) => [
      `    ${name}: ${KINDS[kind].type}`,
      `    """${KINDS[kind].comment}"""`,
    ]),
    '    further: Mapping[str, Any] = field(default_factory=dict)',
    '    """Further fields, which pass through to the mail template."""',
    '',
    '',
  ];
}

function constructors({ type, summary, audiences }: TypeContract): string[] {
  const constructor = (suffix: string, toUsers: boolean) => [
    `def ${pythonName(type)}${suffix}(`,
    `    payload: ${pascalCase(type)}Payload,`,
    '    *,',
    ...(toUsers ? ['    recipient_user_ids: Iterable[str],'] : []),
    '    idempotency_key: str,',
    '    occurred_at: datetime | int,',
    '    expires_at: datetime | int | None = None,',
    '    request_id: str | None = None,',
    '    trace_id: str | None = None,',
    '    traceparent: str | None = None,',
    ') -> Intent:',
    `    """${summary}`,
    '',
    `    Raises InvalidIntentError for what the service would refuse.`,
    '    """',
    '    return new_intent(',
    `        "${type}",`,
    `        "${toUsers ? 'user' : 'admin_email'}",`,
    '        payload,',
    `        recipient_user_ids=${toUsers ? 'recipient_user_ids' : 'None'},`,
    '        idempotency_key=idempotency_key,',
    '        occurred_at=occurred_at,',
    '        expires_at=expires_at,',
    '        request_id=request_id,',
    '        trace_id=trace_id,',
    '        traceparent=traceparent,',
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

/** What the service knows of each type, for the module that validates. */
function rows(contracts: readonly TypeContract[]): string[] {
  return [
    ...Object.entries(LIMITS).map(([name, value]) => `${name} = ${value}`),
    '',
    '# Type: producer, audiences, and name and kind of the payload fields in the order of their checks.',
    'CATALOG: dict[str, tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]]] = {',
    ...contracts.flatMap(({ type, producer, audiences, fields }) => [
      `    "${type}": (`,
      `        "${producer}",`,
      `        ${tuple(audiences.map((audience) => `"${audience}"`))},`,
      `        ${tuple(fields.map(({ name, kind }) => `("${name}", "${kind}")`))},`,
      '    ),',
    ]),
    '}',
  ];
}

const GENERATED = 'Made from the catalog by galaxy-notify catalog clients.';

/** @returns name and text of the generated modules. */
export function pythonFiles(contracts: readonly TypeContract[]): [name: string, text: string][] {
  const names = contracts.flatMap(({ type, audiences }) => [
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
    'from .intent import Intent, new_intent',
    '',
    '__all__ = [',
    ...names.map((name) => `    "${name}",`),
    ']',
    '',
    '',
    ...contracts.flatMap((contract) => [...payloadClass(contract), ...constructors(contract)]),
  ];
  const catalogFile = [`"""The catalog of types and the limits. ${GENERATED}"""`, '', ...rows(contracts)];
  return [
    ['constructors.py', `${constructorsFile.join('\n').trimEnd()}\n`],
    ['catalog.py', `${catalogFile.join('\n')}\n`],
  ];
}
