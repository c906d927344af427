/**
 * The tables of CONFIGURATION.md, made of `.env.example`, which a test holds against the configuration, and of the
 * secrets that the configuration knows. `npm run generate` writes them. With `--check` this program fails when
 * they are not up to date.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { format, resolveConfig } from 'prettier';
import { VARIABLES } from '../config/load.ts';

const ROOT = path.dirname(import.meta.dirname);
const PAGE = path.join(ROOT, 'CONFIGURATION.md');
const REQUIRED = ' Required in production.';

const secrets = new Set(
  Object.entries(VARIABLES).flatMap(([name, row]) => ('secret' in row && row.secret ? [name] : [])),
);

/** A section for each heading of `.env.example`: a variable stands below its meaning. */
function tables(): string {
  const lines = readFileSync(path.join(ROOT, '.env.example'), 'utf8').split('\n');
  return lines
    .flatMap((line, index) => {
      if (line.startsWith('## ')) {
        return [
          '',
          `### ${line.slice(3)}`,
          '',
          '| variable | default | production | meaning |',
          '|---|---|---|---|',
        ];
      }
      const [, name, value = ''] = /^# ([A-Z0-9_]+)=(.*)$/.exec(line) ?? [];
      return name === undefined ? [] : [rowOf(name, value, lines[index - 1]!.slice(2))];
    })
    .join('\n');
}

function rowOf(name: string, value: string, comment: string): string {
  const meaning = comment.replace(REQUIRED, '').replaceAll('|', '\\|');
  const isByRole = /required in production by the role/i.test(meaning);
  const required = comment.endsWith(REQUIRED) ? 'required' : isByRole ? 'by role' : '';
  const production = [required, secrets.has(name) ? 'secret' : ''].filter(Boolean).join(', ');
  return `| \`${name}\` | ${value === '' ? '' : `\`${value}\``} | ${production} | ${meaning} |`;
}

/** The page with the tables between its marks. @throws Error when it has no marks. */
async function pageWithTables(): Promise<string> {
  const text = readFileSync(PAGE, 'utf8');
  const begin = '<!-- variables -->';
  const [from, to] = [text.indexOf(begin), text.indexOf('<!-- /variables -->')];
  if (from < 0 || to < from) throw new Error(`${PAGE} has no place for variables`);
  const filled = `${text.slice(0, from)}${begin}\n\n${tables()}\n\n${text.slice(to)}`;
  return format(filled, { ...(await resolveConfig(PAGE)), filepath: PAGE });
}

const page = await pageWithTables();
if (!process.argv.includes('--check')) {
  writeFileSync(PAGE, page);
} else if (page !== readFileSync(PAGE, 'utf8')) {
  console.error('CONFIGURATION.md is not up to date: npm run generate');
  process.exitCode = 1;
}
