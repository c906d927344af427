/** Payloads that satisfy the catalog, for tests that need a valid intent of some type. */
import type { NotificationType } from '../../api/intent/catalog.ts';
import { fieldsOf } from './galaxy.ts';

const FIELDS: Record<string, string | number> = {
  attempted_at_ms: 1790000000000,
  eligible_until_ms: 1792592000000,
  final_turn_number: 120,
  game_id: 'game-42',
  game_name: 'Andromeda',
  turn_number: 54,
};

/** A valid payload of a type: numbers where the catalog wants numbers, the field's own name as text elsewhere. */
export function samplePayload(type: NotificationType): Record<string, string | number> {
  return Object.fromEntries(fieldsOf(type).map((field) => [field, FIELDS[field] ?? `a ${field}`]));
}
