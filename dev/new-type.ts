/**
 * `npm run types:new -- shop.order.shipped …` makes a notification type: its row in the catalog, contract, table,
 * templates, constructors, clients, samples and the lines that tests want for it. `--help` says how.
 *
 * All places are found before the first is written, so a tree that was changed by hand is not left half done. What follows
 * from the catalog is generated afterwards, as `npm run generate` does.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Command, InvalidArgumentError, Option } from 'commander';
import type { Channel, FieldKind } from '../api/intent/catalog.ts';
import { NOTIFICATION_TYPES, PUSH_NOTIFICATION_TYPES, isNotificationType } from '../api/intent/catalog.ts';
import { readContracts, pascalCase } from '../api/intent/generators/contract.ts';
import { goName } from '../api/intent/generators/go.ts';
import { FLATC_VERSION, installedFlatc } from '../api/intent/generators/flatbuffers.mjs';
import { SUPPORTED_LOCALES } from '../api/intent/mail-command.ts';

const ROOT = path.dirname(import.meta.dirname);
const KINDS = ['text', 'lines', 'count', 'time'] as const satisfies readonly FieldKind[];

/** What is asked for. */
interface NewType {
  type: string;
  producer: string;
  audience: 'user' | 'admin_email' | 'both';
  channels: readonly Channel[];
  fields: readonly { name: string; kind: FieldKind }[];
  /** Of the push event; none without push. */
  pushFields: readonly string[];
  summary: string;
}

class Refusal extends Error {}

const isNumber = (kind: FieldKind): boolean => kind === 'count' || kind === 'time';
const quoted = (names: readonly string[]): string => names.map((name) => `'${name}'`).join(', ');

/** A sentence that must be there; what is inserted stands before or behind it. */
function inserted(
  file: string,
  text: string,
  anchor: string | RegExp,
  where: 'before' | 'behind',
  news: string,
): string {
  const [found, ...further] =
    typeof anchor === 'string'
      ? text
          .split(anchor)
          .slice(1)
          .map((_, index) => positionOf(text, anchor, index))
      : [...text.matchAll(anchor)].map(({ index, 0: match }) => ({ index, length: match.length }));
  if (found === undefined || further.length > 0) {
    throw new Refusal(
      `${file}: ${found ? 'more than one place looks' : 'no place looks'} like ${String(anchor)}`,
    );
  }
  const at = where === 'before' ? found.index : found.index + found.length;
  return text.slice(0, at) + news + text.slice(at);
}

function positionOf(text: string, anchor: string, occurrence: number): { index: number; length: number } {
  let index = -1;
  for (let count = 0; count <= occurrence; count += 1) index = text.indexOf(anchor, index + 1);
  return { index, length: anchor.length };
}

type Edit = (text: string) => string;

/** Every file that is written by hand, with what a type changes in it. */
function editsOf(wanted: NewType): Map<string, Edit> {
  const { type, producer, audience, channels, fields, pushFields, summary } = wanted;
  const Name = pascalCase(type);
  const hasPush = pushFields.length > 0;
  const toUsers = audience !== 'admin_email';
  const toAdmins = audience !== 'user';
  const audiences = [...(toUsers ? ['user'] : []), ...(toAdmins ? ['admin_email'] : [])];
  const contracts = readContracts();
  const last = NOTIFICATION_TYPES.at(-1)!;
  const known = new Map(
    contracts.flatMap((contract) => contract.fields.map(({ name, kind }) => [name, kind] as const)),
  );
  const examples = new Map(contracts.flatMap(({ example }) => Object.entries(example)));
  const exampleOf = ({ name, kind }: NewType['fields'][number]): string | number =>
    examples.get(name) ??
    (kind === 'time' ? 1_790_000_000_000 : kind === 'count' ? 7 : `${name.replaceAll('_', ' ')} 7`);
  const edits = new Map<string, Edit>();
  const edit = (file: string, ...steps: ((text: string) => string)[]) =>
    void edits.set(file, (text) => steps.reduce((before, step) => step(before), text));
  const insert =
    (file: string, anchor: string | RegExp, where: 'before' | 'behind', news: string) =>
    (text: string): string =>
      inserted(file, text, anchor, where, news);
  /** The number of types, wherever a test says it. */
  const counted =
    (file: string, before: string, after: string) =>
    (text: string): string => {
      if (!text.includes(before)) throw new Refusal(`${file}: ${before} is not there`);
      return text.replace(before, after);
    };
  const [types, pushes] = [NOTIFICATION_TYPES.length, PUSH_NOTIFICATION_TYPES.length];

  const channelsText = {
    user: hasPush ? 'pushAndEmail' : 'userEmail',
    admin_email: 'adminEmail',
    both: `{ ...${hasPush ? 'pushAndEmail' : 'userEmail'}, ...adminEmail }`,
  }[audience];
  const kindNames: Record<FieldKind, string> = {
    text: 'text',
    lines: 'lines',
    count: 'count',
    time: 'timestampMs',
  };
  const catalog = 'api/intent/catalog.ts';
  edit(
    catalog,
    insert(
      catalog,
      '} as const satisfies Record<string, CatalogRow>;',
      'before',
      `  '${type}': {
    producer: '${producer}',
    channels: ${channelsText},
    payload: { ${fields.map(({ name, kind }) => `${name}: ${kindNames[kind]}`).join(', ')} },
${hasPush ? `    push: { table: '${Name}Event', fields: [${quoted(pushFields)}] },\n` : ''}  },
`,
    ),
    (text) =>
      new RegExp(`PRODUCERS = \\[[^\\]]*'${producer}'`).test(text)
        ? text
        : inserted(catalog, text, /(?<=PRODUCERS = \[[^\]]*)(?=\] as const)/g, 'before', `, '${producer}'`),
  );

  const schemas = fields.map(
    ({ name, kind }) => `                  ${name}: { $ref: '#/components/schemas/${kind}' }`,
  );
  const shown = fields.map((field, index) => {
    const value = exampleOf(field);
    return `                  ${index === 0 ? '- ' : '  '}${field.name}: ${typeof value === 'number' ? value : JSON.stringify(value)}`;
  });
  const asyncapi = 'api/intent/intents-asyncapi.yaml';
  const channelsOf = audiences.map(
    (one) => `${one}: [${(one === 'user' ? channels : ['email']).join(', ')}]`,
  );
  const base = audience === 'both' ? 'AnyIntent' : audience === 'user' ? 'UserIntent' : 'AdminIntent';
  edit(
    asyncapi,
    insert(
      asyncapi,
      new RegExp(`(?<=\\n      ${last.replaceAll('.', '\\.')}:\\n(?:        .*\\n)+)(?!        )`, 'g'),
      'before',
      `      ${type}:
        summary: ${JSON.stringify(summary)}
        x-channels: { ${channelsOf.join(', ')} }
        payload:
          allOf: [{ $ref: '#/components/schemas/${base}' }]
          properties:
            notification_type: { const: ${type} }
            producer: { const: ${producer} }
            payload_json:
              contentSchema:
                type: object
                required: [${fields.map(({ name }) => name).join(', ')}]
                properties:
${schemas.join('\n')}
                examples:
${shown.join('\n')}
`,
    ),
  );

  const client = 'client/notificationintent.ts';
  edit(
    client,
    insert(
      client,
      `constructorOf('${last}');\n`,
      'behind',
      `export const new${Name} = constructorOf('${type}');\n`,
    ),
  );

  if (hasPush) {
    const fbs = 'api/intent/notification.fbs';
    const members = pushFields.map((name) => {
      const kind = fields.find((field) => field.name === name)!.kind;
      const comment = kind === 'time' ? '  /// Milliseconds since the Unix epoch.\n' : '';
      return `${comment}  ${name}: ${isNumber(kind) ? 'long' : 'string'};\n`;
    });
    edit(
      fbs,
      (text) =>
        `${text.trimEnd()}\n\n/// \`${type}\`: ${summary}\ntable ${Name}Event {\n${members.join('')}}\n`,
    );
  }

  for (const locale of SUPPORTED_LOCALES) {
    const folder = `templates/${type}/${locale}`;
    const subject = fields.find(({ kind }) => kind === 'text');
    const named = subject ? `{{.${subject.name}}}: ` : '';
    // Nobody reads milliseconds.
    const details = fields
      .filter(({ kind }) => kind !== 'time')
      .map(({ name }) => `${name.replaceAll('_', ' ')}: {{.${name}}}`)
      .join('\n');
    edit(`${folder}/subject.tmpl`, () => `${named}${type.split('.').join(' ').replaceAll('_', ' ')}\n`);
    edit(`${folder}/text.tmpl`, () => `Hello,\n\n${summary}\n\n${details}\n`);
  }

  if (toAdmins) {
    const file = '.env.example';
    const variable = `NOTIFICATION_ADMIN_EMAILS_${type.replaceAll('.', '_').toUpperCase()}`;
    edit(
      file,
      insert(
        file,
        /(?<=# NOTIFICATION_ADMIN_EMAILS_[A-Z_]+=\n)(?!# Administrators)/g,
        'before',
        `# Administrators who get ${type}, comma-separated.\n# ${variable}=\n`,
      ),
    );
    const test = 'test/platform/config.unit.test.ts';
    edit(
      test,
      insert(
        test,
        /(?<=const ADMIN_LISTS = \[[^;]*)\] as const;/g,
        'before',
        `  ['${variable}', '${type}'],\n`,
      ),
    );
  }

  const fresh = fields.filter(({ name }) => !known.has(name));
  if (fresh.length > 0) {
    const samples = 'client/intent/sample-intents.ts';
    const values = fresh.map((field) => {
      const value = exampleOf(field);
      const text =
        field.kind === 'time' ? 'Date.now()' : typeof value === 'number' ? String(value) : `'${value}'`;
      return `  ${field.name}: ${text},\n`;
    });
    edit(samples, insert(samples, /(?<=const SAMPLE_FIELDS[^;]*)(?=\};)/g, 'before', values.join('')));
  }
  const numbers = fresh.filter(({ kind }) => isNumber(kind));
  if (numbers.length > 0) {
    const samples = 'test/intent/samples.ts';
    const values = numbers.map((field) => `  ${field.name}: ${String(exampleOf(field))},\n`);
    edit(samples, insert(samples, /(?<=const FIELDS[^;]*)(?=\};)/g, 'before', values.join('')));
  }

  const ledger = 'faults/ledger/notification-types.ts';
  const judged = audiences.map((one) => `${one}: ${one === 'user' && hasPush ? 'both' : 'mail'}`).join(', ');
  const layout = pushFields.map((name) => {
    const kind = fields.find((field) => field.name === name)!.kind;
    return `${isNumber(kind) ? 'long' : 'text'}('${name}')`;
  });
  const unusual = numbers.filter(({ name }) => !name.endsWith('_ms') && !name.endsWith('turn_number'));
  edit(
    ledger,
    insert(
      ledger,
      /(?<=export const TYPES[^;]*)(?=\};)/g,
      'before',
      `  '${type}': {
    producer: '${producer}',
    channels: { ${judged} },
    payload: [${quoted(fields.map(({ name }) => name))}],
${hasPush ? `    push: [${layout.join(', ')}],\n` : ''}  },
`,
    ),
    (text) =>
      unusual.length === 0
        ? text
        : inserted(
            ledger,
            text,
            "    if (field === 'user_email')",
            'before',
            `    if ([${quoted(unusual.map(({ name }) => name))}].includes(field)) return number;\n`,
          ),
  );

  const envelope = 'test/intent/envelope.unit.test.ts';
  const row = `  ['${type}', '${producer}', [${quoted(audiences)}], [${quoted(fields.map(({ name }) => name))}]],\n`;
  edit(
    envelope,
    insert(envelope, /(?<=const SEED_CATALOG[^;]*)(?=\];\n\ndescribe\('envelope')/g, 'before', row),
    counted(envelope, `expect(rows).toHaveLength(${types})`, `expect(rows).toHaveLength(${types + 1})`),
  );
  const contractsTest = 'test/intent/contracts.unit.test.ts';
  edit(
    contractsTest,
    counted(
      contractsTest,
      `expect(NOTIFICATION_TYPES).toHaveLength(${types})`,
      `expect(NOTIFICATION_TYPES).toHaveLength(${types + 1})`,
    ),
  );
  const producerTest = 'test/intent/producer.service.test.ts';
  edit(
    producerTest,
    insert(producerTest, /(?<=const CONSTRUCTORS[^;]*)(?=\};)/g, 'before', `  new${Name}: '${type}',\n`),
    counted(
      producerTest,
      `expect(exported).toHaveLength(${types})`,
      `expect(exported).toHaveLength(${types + 1})`,
    ),
  );
  if (toUsers) {
    const policies = 'test/intent/policies.unit.test.ts';
    const list = hasPush
      ? /(?<=const PUSH_AND_EMAIL = \[[^;]*)(?=\];)/g
      : /(?<=const EMAIL_ONLY = \[[^;]*)(?=\];)/g;
    edit(policies, insert(policies, list, 'before', hasPush ? `  '${type}',\n` : `, '${type}'`));
  }
  if (hasPush) {
    const pushTest = 'test/intent/push-event.unit.test.ts';
    edit(
      pushTest,
      counted(
        pushTest,
        `expect(PUSH_NOTIFICATION_TYPES).toHaveLength(${pushes})`,
        `expect(PUSH_NOTIFICATION_TYPES).toHaveLength(${pushes + 1})`,
      ),
    );
  }
  editGoTests(wanted, insert, edit);
  return edits;
}

function editGoTests(
  { type, audience, fields, pushFields }: NewType,
  insert: (file: string, anchor: string | RegExp, where: 'before' | 'behind', news: string) => Edit,
  edit: (file: string, ...steps: Edit[]) => void,
): void {
  const Name = pascalCase(type);
  const intents = 'clients/go/intent_test.go';
  const values = fields.map(({ name, kind }) => `${goName(name)}: ${isNumber(kind) ? '7' : '"seven"'}`);
  const payload = `${Name}Payload{${values.join(', ')}}`;
  const lines = [
    ...(audience === 'admin_email' ? [] : [`\tkeep(New${Name}(turnEvent, users, ${payload}))\n`]),
    ...(audience === 'admin_email' ? [`\tkeep(New${Name}(turnEvent, ${payload}))\n`] : []),
    ...(audience === 'both' ? [`\tkeep(New${Name}ToAdministrators(turnEvent, ${payload}))\n`] : []),
  ];
  edit(intents, insert(intents, '\taudiences := 0\n', 'before', lines.join('')));
  if (pushFields.length === 0) return;
  const vectors = 'clients/go/vectors_test.go';
  // As flatc writes them, which knows no initialisms.
  const read = pushFields.map((name) => {
    const kind = fields.find((field) => field.name === name)!.kind;
    return `"${name}": ${isNumber(kind) ? 'float64' : 'string'}(event.${pascalCase(name)}())`;
  });
  edit(
    vectors,
    insert(
      vectors,
      '\t}\n\tpayloads := readVectors(t).PushPayloads\n',
      'before',
      `\t\t"${type}": func(bytes []byte) map[string]any {
\t\t\tevent := notification.GetRootAs${Name}Event(bytes, 0)
\t\t\treturn map[string]any{${read.join(', ')}}
\t\t},
`,
    ),
  );
}

/** @throws Refusal when the type cannot be made, with nothing written. */
function make(wanted: NewType, { dryRun = false }: { dryRun?: boolean }): string[] {
  if (wanted.pushFields.length > 0) {
    const found = installedFlatc();
    if (found !== FLATC_VERSION) {
      throw new Refusal(
        `a type with push needs flatc ${FLATC_VERSION} for the classes of its table, found ${found ?? 'none'}: on Debian 12 and Ubuntu 24.04 apt-get install flatbuffers-compiler; --channels email makes one without`,
      );
    }
  }
  const written = [...editsOf(wanted)].map(([file, edit]): [string, string] => {
    const place = path.join(ROOT, file);
    return [file, edit(existsSync(place) ? readFileSync(place, 'utf8') : '')];
  });
  if (dryRun) return written.map(([file]) => file);
  for (const [file, text] of written) {
    mkdirSync(path.dirname(path.join(ROOT, file)), { recursive: true });
    writeFileSync(path.join(ROOT, file), text);
  }
  const formatted = written.map(([file]) => file).filter((file) => /\.(ts|yaml)$/.test(file));
  run([
    path.join('node_modules', 'prettier', 'bin', 'prettier.cjs'),
    '--log-level',
    'warn',
    '--write',
    ...formatted,
  ]);
  // Processes of their own: they load the catalog as it is now.
  run(['api/generate.mjs']);
  run(['dev/configuration.ts']);
  return written.map(([file]) => file);
}

function run(args: readonly string[]): void {
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8' });
  if (status !== 0) throw new Error(`node ${args[0]} failed:\n${stdout}${stderr}`);
}

interface Options {
  producer?: string;
  audience: NewType['audience'];
  channels?: Channel[];
  field: NewType['fields'];
  pushField?: string[];
  summary?: string;
  dryRun?: boolean;
  json?: boolean;
}

/** @throws Refusal */
function wantedOf(type: string, options: Options): NewType {
  const { audience, field: fields, summary = `${type.split('.').join(' ').replaceAll('_', ' ')}.` } = options;
  if (!/^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+$/.test(type)) {
    throw new Refusal(`${type} is no name of a type: write it as shop.order.shipped`);
  }
  if (isNotificationType(type)) throw new Refusal(`${type} is in the catalog already`);
  if (fields.length === 0) throw new Refusal('a type needs a payload: --field order_id:text');
  const names = fields.map(({ name }) => name);
  if (new Set(names).size < names.length) throw new Refusal('a field is given twice');
  for (const contract of readContracts()) {
    for (const { name, kind } of contract.fields) {
      const own = fields.find((field) => field.name === name);
      if (own && own.kind !== kind)
        throw new Refusal(`${name} is ${kind} in ${contract.type}; one name has one kind`);
    }
  }
  const channels = options.channels ?? (audience === 'admin_email' ? ['email'] : ['push', 'email']);
  if (!channels.includes('email')) throw new Refusal('every type has e-mail');
  const hasPush = channels.includes('push');
  if (hasPush && audience === 'admin_email')
    throw new Refusal('administrators get e-mail only: --channels email');
  const byDefault = fields
    .filter(({ name, kind }) => name.endsWith('_id') || isNumber(kind))
    .map(({ name }) => name);
  const pushFields = hasPush ? (options.pushField ?? byDefault) : [];
  const unknown = pushFields.find((name) => !names.includes(name));
  if (unknown !== undefined) throw new Refusal(`${unknown} is no field of the payload`);
  if (hasPush && pushFields.length === 0)
    throw new Refusal('a push event needs a field: --push-field order_id');
  return {
    type,
    producer: options.producer ?? type.split('.')[0]!,
    audience,
    channels,
    fields,
    pushFields,
    summary,
  };
}

function parseField(text: string, before: NewType['fields']): NewType['fields'] {
  const [, name, kind = 'text'] = /^([a-z][a-z0-9_]*)(?::(\w+))?$/.exec(text) ?? [];
  const known = KINDS.find((one) => one === kind);
  if (name === undefined || known === undefined) {
    throw new InvalidArgumentError(`Write name:kind, with one of the kinds ${KINDS.join(', ')}.`);
  }
  return [...before, { name, kind: known }];
}

const program = new Command('npm run types:new --')
  .description('Make a notification type, with everything that it touches.')
  .argument('<type>', 'its name, for instance shop.order.shipped')
  .option(
    '--field <name:kind>',
    'a required field of the payload; kinds are text, lines, count and time',
    parseField,
    [],
  )
  .option('--producer <name>', 'who publishes it; default: the first part of the type')
  .addOption(
    new Option('--audience <audience>', 'who gets it')
      .choices(['user', 'admin_email', 'both'])
      .default('user'),
  )
  .option(
    '--channels <channels>',
    'push,email or email; default: push,email for users',
    (text) => text.split(',') as Channel[],
  )
  .option(
    '--push-field <name>',
    'a field of the push event; default: ids and numbers',
    (name: string, before: string[] = []) => [...before, name],
  )
  .option('--summary <sentence>', 'what has happened, and who is told')
  .option('--dry-run', 'say which files would change, and change none')
  .option('--json', 'print the result as JSON')
  .addHelpText(
    'after',
    `
Example:
  npm run types:new -- shop.order.shipped --field order_id:text --field items:count --summary "An order is on its way."

Exit codes: 0 done, 1 refused or failed, with nothing changed when it says why.`,
  )
  .action((type: string, options: Options) => {
    try {
      const files = make(wantedOf(type, options), options);
      if (options.json) console.log(JSON.stringify({ type, files }, null, 2));
      else {
        console.log(
          `${type}: ${files.length} files ${options.dryRun ? 'would change' : 'changed, and what is generated from them'}`,
        );
        for (const file of files) console.log(`  ${file}`);
        if (!options.dryRun)
          console.log('Now word templates and summary, then: npm run test:unit, npm test -- intent');
      }
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      console.error(`error: ${error.message}`);
      process.exitCode = 1;
    }
  });

program.parse();
