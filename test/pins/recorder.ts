// What a door answers → stable text, compared with a recorded file. UPDATE_CORPUS=1 writes the file anew.
// Left out is what may differ between two runs or two versions: ids, secrets, times, ports, paths, cursors and prose.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Fields whose value is an id that the gateway made, unless it is one that a test gave. */
const idFields = new Set([
  'runId',
  'abortedRunId',
  'messageId',
  'sessionId',
  'deliveryId',
  'exchangeId',
  'connId',
  'bootId',
  'nonce',
  'id',
]);
const idLists = new Set(['activeRunIds', 'runIds', 'deliveryIds']);
/** Opaque to clients. */
const cursorFields = new Set(['cursor', 'nextCursor', 'deltaCursor', 'lastEventId']);
/** Sentences for people and models. */
const proseFields = new Set([
  'error',
  'errorMessage',
  'why',
  'sentence',
  'next',
  'note',
  'about',
  'description',
  'instructions',
  'warnings',
  'title',
  'thinkingNote',
  'answer',
  'says',
  'toldToCaller',
]);
const varying = new Set(['pid', 'version', 'uptimeMs', 'durationMs', 'connections']);

export class Recorder {
  /** What was said so far. */
  readonly lines: string[] = [];
  private readonly names = new Map<string, string>();
  private readonly counts = new Map<string, number>();
  private readonly given = new Set<string>();
  /** Times are told relative to this. */
  private readonly start: number | undefined;
  private readonly paths: [string, string][] = [];

  constructor(start?: number) {
    this.start = start;
  }

  /** An id that the test chose is shown as it is. */
  give(...ids: string[]): void {
    for (const id of ids) this.given.add(id);
  }

  path(path: string, name: string): void {
    this.paths.push([path, name]);
  }

  /** A request and what it was answered with. */
  line(request: string, ...answers: unknown[]): void {
    this.lines.push(
      `> ${this.text(request)}`,
      ...answers.map((answer) => `< ${typeof answer === 'string' ? answer : this.json(answer)}`),
      '',
    );
  }

  heading(text: string): void {
    this.lines.push(`# ${text}`, '');
  }

  json(value: unknown): string {
    return JSON.stringify(this.value(value, ''));
  }

  /** What was said when the file was recorded. */
  recorded(file: string): string[] {
    const path = join('test/pins/corpus', file);
    if (process.env['UPDATE_CORPUS'] !== undefined) writeFileSync(path, this.lines.join('\n'));
    return readFileSync(path, 'utf8').split('\n');
  }

  /** Ids, secrets, times and places inside a text. */
  text(text: string): string {
    let said = text;
    for (const [path, name] of this.paths) said = said.replaceAll(path, name);
    return said
      .replaceAll(/"(runId|sessionId|deliveryId|turnId)":"([^"]+)"/g, (_, field: string, id: string) => `"${field}":"${this.id(id)}"`)
      .replaceAll(/il_[0-9a-f]{16}_[\w-]{43}/g, (token) => this.named('token', token))
      .replaceAll(/([?&]cursor=)[^&\s]+/g, '$1<cursor>')
      .replaceAll(/(code=)[\w-]{32}/g, '$1<code>')
      .replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, (id) => this.named('id', id))
      .replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g, '<date>')
      .replaceAll(/(127\.0\.0\.1|localhost|\[::1\]):\d+/g, '$1:<port>')
      .replaceAll(/interlane-\d+=/g, 'interlane-<port>=')
      .replaceAll(/browser-[a-z0-9]{8}/g, 'browser-<name>');
  }

  private value(value: unknown, field: string, parent?: Record<string, unknown>): unknown {
    if (typeof value === 'string') return this.string(value, field, parent);
    if (typeof value === 'number') return this.number(value, field);
    if (typeof value !== 'object' || value === null) return value;
    if (Array.isArray(value)) {
      if (field === 'warnings') return value.map(() => '<prose>');
      if (idLists.has(field)) return value.map((id) => (typeof id === 'string' ? this.id(id) : id));
      return value.map((one) => this.value(one, field, parent));
    }
    const object = value as Record<string, unknown>;
    return Object.fromEntries(Object.entries(object).map(([key, inner]) => [this.text(key), this.value(inner, key, object)]));
  }

  private string(text: string, field: string, parent: Record<string, unknown> | undefined): unknown {
    if (cursorFields.has(field)) return '<cursor>';
    if (proseFields.has(field)) return '<prose>';
    if (field === 'message' && parent && ('code' in parent || 'type' in parent)) return '<prose>';
    if (field === 'summary' && text !== 'completed') return '<prose>';
    if (field === 'reason' && text.includes(' ')) return '<prose>';
    if (varying.has(field)) return `<${field}>`;
    if (idFields.has(field)) return this.id(text);
    if (field === 'idempotencyKey') return text.replace(/^(.*)(:user)$/, (_, id: string, rest: string) => this.id(id) + rest);
    if (field === 'turnId') return text.replace(/^(.*)(\.\d+)$/, (_, id: string, attempt: string) => this.id(id) + attempt);
    // The result of a tool is JSON inside of text: the same fields are left out there.
    if (/^[{[].*[}\]]$/s.test(text)) {
      try {
        return `json ${JSON.stringify(this.value(JSON.parse(text), field))}`;
      } catch {
        // it only looks like it
      }
    }
    return this.text(text);
  }

  private number(value: number, field: string): unknown {
    if (varying.has(field)) return `<${field}>`;
    if (value < 1_700_000_000_000 || value > 2_100_000_000_000) return value;
    return this.start === undefined ? '<time>' : `<time+${value - this.start}>`;
  }

  private id(id: string): string {
    if (this.given.has(id) || /^(\d+\.\d+|[a-z0-9:_-]{1,12})$/.test(id)) return id;
    return /^(.*)(\.\d+)$/.exec(id)
      ? id.replace(/^(.*)(\.\d+)$/, (_, run: string, rest: string) => this.id(run) + rest)
      : this.named('id', id);
  }

  private named(kind: string, value: string): string {
    const known = this.names.get(value);
    if (known !== undefined) return known;
    const count = (this.counts.get(kind) ?? 0) + 1;
    this.counts.set(kind, count);
    const name = `<${kind}:${count}>`;
    this.names.set(value, name);
    return name;
  }
}
