/** Pages of which a part, between `<!-- name -->` and `<!-- /name -->`, is written by a program. */
import { readFileSync, writeFileSync } from 'node:fs';
import { format, resolveConfig } from 'prettier';

/** Replaces what stands between the marks, and formats the page. @throws Error when the page has no such marks. */
export async function fillMarkedText(page: string, name: string, content: string): Promise<void> {
  writeFileSync(page, await withMarkedText(page, name, content));
}

/** The text that `fillMarkedText` writes. */
export async function withMarkedText(page: string, name: string, content: string): Promise<string> {
  const text = readFileSync(page, 'utf8');
  const [begin, end] = [`<!-- ${name} -->`, `<!-- /${name} -->`];
  const [from, to] = [text.indexOf(begin), text.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`${page} has no place for ${name}`);
  const filled = `${text.slice(0, from)}${begin}\n\n${content}\n\n${text.slice(to)}`;
  return format(filled, { ...(await resolveConfig(page)), filepath: page });
}
