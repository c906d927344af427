/** `.env.example` says what the program does. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { z } from 'zod';
import { VARIABLES } from '../../config/load.ts';
import { defaultOf } from '../../config/variables.ts';
import { ADMIN_EMAIL_VARIABLES } from '../intent/galaxy.ts';

describe('.env.example', () => {
  const lines = readFileSync(path.join(import.meta.dirname, '../../.env.example'), 'utf8').split('\n');
  const rows = Object.entries<z.ZodType>({ ...VARIABLES, ...ADMIN_EMAIL_VARIABLES });

  test('I30 it has every variable with its default, in order, commented out', () => {
    const shown = lines.filter((line) => /^#? ?[A-Z0-9_]+=/.test(line));

    expect(shown).toEqual(rows.map(([name, schema]) => `# ${name}=${defaultOf(schema) ?? ''}`));
  });

  test('I30 above every variable stands its meaning, and whether production requires it', () => {
    for (const [name, schema] of rows) {
      const { description, requiredInProduction } = schema.meta()!;
      const above = lines[lines.findIndex((line) => line.startsWith(`# ${name}=`)) - 1];

      expect(above).toBe(`# ${description}${requiredInProduction ? ' Required in production.' : ''}`);
    }
  });
});
