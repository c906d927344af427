/** What a new catalog would break for those who know an older one: producers, clients and consumers of push events. */
import { isDeepStrictEqual } from 'node:util';
import type { Catalog, PayloadField, TypeSpec } from './catalog.ts';
import { rangeOf } from './catalog.ts';

/** @returns one line for each change that breaks a producer or a receiver; none when the new catalog can take the place of the old one. */
export function breakingChanges(before: Catalog, after: Catalog): string[] {
  return [...before.types.values()].flatMap((old) => {
    const now = after.types.get(old.type);
    if (now === undefined)
      return [`types.${old.type}: is gone; retired: true refuses new intents and delivers what was accepted`];
    return changesOf(old, now).map((change) => `types.${old.type}.${change}`);
  });
}

const when = (isBroken: boolean, change: string): string[] => (isBroken ? [change] : []);

function changesOf(old: TypeSpec, now: TypeSpec): string[] {
  const lost = old.audiences.filter((audience) => !now.audiences.includes(audience));
  return [
    ...when(now.producer !== old.producer, `producer: was ${old.producer}, is ${now.producer}`),
    ...lost.map((audience) => `audiences: ${audience} is gone`),
    ...now.fields.flatMap(({ name, field, isRequired }) => {
      const known = old.fields.find((other) => other.name === name);
      if (isRequired && known?.isRequired !== true) return [`payload.required: ${name} is new`];
      return known !== undefined && isNarrower(known.field, field)
        ? [`payload.properties.${name}: refuses what was accepted before`]
        : [];
    }),
    ...pushChanges(old, now),
  ];
}

/** A consumer knows a field by its slot: those that were there stay where they were. */
function pushChanges({ push: old }: TypeSpec, { push: now }: TypeSpec): string[] {
  if (old === undefined) return [];
  if (now === undefined) return ['push: is gone'];
  return [
    ...when(now.encoding !== old.encoding, `push.encoding: was ${old.encoding}, is ${now.encoding}`),
    ...when(now.table !== old.table, `push.table: was ${old.table}, is ${now.table}`),
    ...old.fields.flatMap((field, slot) =>
      when(
        !isDeepStrictEqual(field, now.fields[slot]),
        `push.fields: slot ${slot} was ${slotOf(field)}, is ${slotOf(now.fields[slot])}`,
      ),
    ),
  ];
}

const slotOf = (field: { name: string; type: string } | undefined): string =>
  field === undefined ? 'gone' : `${field.name} (${field.type})`;

function isNarrower(old: PayloadField, now: PayloadField): boolean {
  if (old.type !== now.type) return true;
  const [oldRange, range] = [rangeOf(old), rangeOf(now)];
  if (range.least > oldRange.least || range.most < oldRange.most) return true;
  if (old.type !== 'string' || now.type !== 'string') return false;
  const formats = ['line', 'text', undefined];
  return (
    formats.indexOf(now.format) < formats.indexOf(old.format) ||
    (now.enum !== undefined &&
      (old.enum === undefined || old.enum.some((value) => !now.enum!.includes(value))))
  );
}
