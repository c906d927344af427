/**
 * Reads a table of FlatBuffers by the published layout of the format, every offset checked against the bytes: a root
 * offset, a table with the offset of its vtable, and in the vtable the place of each field by its number.
 */
import { isUtf8 } from 'node:buffer';

export type FieldKind = 'string' | 'long' | 'boolean';
/** A table's fields in the order of the schema, which is their numbering. */
export type TableLayout = readonly (readonly [name: string, kind: FieldKind])[];

/**
 * @returns the fields that the table has, longs as bigint: a number that is left out is 0, and a boolean false, as the format
 * has it.
 * @throws RangeError when the bytes are no such table, or have fields that the layout does not know.
 */
export function readTable(bytes: Buffer, layout: TableLayout): Record<string, string | bigint | boolean> {
  const table = bytes.readUInt32LE(0);
  const vtable = table - bytes.readInt32LE(table);
  const slots = (bytes.readUInt16LE(vtable) - 4) / 2;
  if (slots > layout.length) throw new RangeError(`${slots} fields where ${layout.length} are known`);
  const found: Record<string, string | bigint | boolean> = {};
  for (const [name, kind] of layout) if (kind !== 'string') found[name] = kind === 'long' ? 0n : false;
  for (let slot = 0; slot < slots; slot += 1) {
    const offset = bytes.readUInt16LE(vtable + 4 + 2 * slot);
    if (offset === 0) continue;
    const [name, kind] = layout[slot]!;
    const at = table + offset;
    if (kind === 'string') found[name] = readString(bytes, at);
    else found[name] = kind === 'long' ? bytes.readBigInt64LE(at) : bytes.readUInt8(at) !== 0;
  }
  return found;
}

function readString(bytes: Buffer, at: number): string {
  const start = at + bytes.readUInt32LE(at);
  const end = start + 4 + bytes.readUInt32LE(start);
  if (bytes.readUInt8(end) !== 0) throw new RangeError('a string without its end');
  const text = bytes.subarray(start + 4, end);
  if (!isUtf8(text)) throw new RangeError('a string that is not UTF-8');
  return text.toString('utf8');
}
