// Agent and account ids: a path-safe token, made once on input from the text of a person or a platform.

const token = /^[a-z0-9_-]{1,64}$/;

/** True for text that already is an id, so that `agentId(text) === text`. */
export function isIdToken(text: string): boolean {
  return token.test(text);
}

/** `My Agent` → `my-agent`; blank → `main`. */
export function agentId(raw: string): string {
  return idToken(raw) || 'main';
}

/** `Work Phone` → `work-phone`; blank → `default`. */
export function accountId(raw: string): string {
  return idToken(raw) || 'default';
}

/** A platform's own ids (peer, guild, team, channel name): trimmed and lower-cased, nothing else. */
export function platformId(raw: string): string {
  return raw.trim().toLowerCase();
}

function idToken(raw: string): string {
  const text = raw.trim().toLowerCase();
  if (isIdToken(text)) return text;
  return text
    .replace(/[^a-z0-9_-]+/g, '-')
    .replace(/^-+/, '')
    .slice(0, 64)
    .replace(/-+$/, '');
}
