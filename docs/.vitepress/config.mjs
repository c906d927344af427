/** The site of docs/: a sidebar by folder, local search, and llms.txt. A dead link fails the build. */
import { existsSync, globSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const DOCS = path.dirname(import.meta.dirname);
const REPOSITORY = 'https://github.com/galaxy-notify/galaxy-notify';
const DESCRIPTION = 'Durable notification delivery on Temporal, PostgreSQL and Redis.';

const SECTIONS = {
  start: 'Start',
  producers: 'Producers',
  provide: 'What you provide',
  kinds: 'Kinds of work',
  operate: 'Operate',
  deploy: 'Deploy',
  reference: 'Reference',
  internals: 'Internals',
};
/** Pages that stand before the others of their folder. */
const FIRST = ['quickstart', 'concepts', 'publish', 'intent', 'first-night', 'checklist', 'configure'];
const rankOf = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);

const pagesOf = (folder) =>
  globSync(`${folder}/*.md`, { cwd: DOCS })
    .map((file) => {
      const name = path.basename(file, '.md');
      const [, text = name] = /^# (.+)$/m.exec(readFileSync(path.join(DOCS, file), 'utf8')) ?? [];
      return { name, text: text.replaceAll('`', ''), link: `/${folder}/${name}` };
    })
    .sort((one, other) => rankOf(one.name) - rankOf(other.name) || one.name.localeCompare(other.name));

const sidebar = Object.entries(SECTIONS)
  .map(([folder, text]) => ({ text, collapsed: true, items: pagesOf(folder) }))
  .filter(({ items }) => items.length > 0);

/** Links of a page to files that are no pages of the site lead to the repository. */
function linkToRepository(md) {
  md.core.ruler.push('repository', ({ tokens, env }) => {
    for (const token of tokens.flatMap(({ children }) => children ?? [])) {
      const href = token.type === 'link_open' ? token.attrGet('href') : null;
      if (href === null || /^([a-z]+:|\/|#)/.test(href)) continue;
      const [file, anchor] = href.split('#');
      const target = path.join('docs', path.dirname(env.relativePath), file);
      const isPage = target.startsWith('docs/') && /\.md$/.test(target);
      if (!isPage && existsSync(path.join(DOCS, '..', target))) {
        token.attrSet('href', `${REPOSITORY}/blob/main/${target}${anchor ? `#${anchor}` : ''}`);
      }
    }
  });
}

/** The site for programs that read text: https://llmstxt.org. */
function writeLlmsText({ outDir }) {
  const sections = sidebar.map(
    ({ text, items }) =>
      `## ${text}\n\n${items.map((page) => `- [${page.text}](${page.link}.html)`).join('\n')}`,
  );
  writeFileSync(
    path.join(outDir, 'llms.txt'),
    `${[`# galaxy-notify`, `> ${DESCRIPTION}`, ...sections].join('\n\n')}\n`,
  );
}

/** The generator checks links of texts, not those of the start page's buttons. */
function checkButtons() {
  const links = [...readFileSync(path.join(DOCS, 'index.md'), 'utf8').matchAll(/link: (\/\S+)/g)];
  const dead = links.map(([, link]) => link).filter((link) => !existsSync(path.join(DOCS, `${link}.md`)));
  if (dead.length > 0) throw new Error(`index.md links to pages that do not exist: ${dead.join(', ')}`);
}

export default {
  title: 'galaxy-notify',
  description: DESCRIPTION,
  cacheDir: 'node_modules/.cache/vitepress',
  outDir: 'node_modules/.site',
  // Not the tsconfig.json of the service.
  vite: { esbuild: { tsconfigRaw: '{}' } },
  markdown: {
    config: linkToRepository,
    // As the repository's host makes anchors, so that a link works in both.
    anchor: {
      slugify: (heading) =>
        heading
          .trim()
          .toLowerCase()
          .replace(/[^\p{L}\p{N}_\- ]/gu, '')
          .replaceAll(' ', '-'),
    },
  },
  buildEnd(site) {
    checkButtons();
    writeLlmsText(site);
  },
  themeConfig: {
    sidebar,
    search: { provider: 'local' },
    socialLinks: [{ icon: 'github', link: REPOSITORY }],
  },
};
