// Whose request this may be: the Host it names, the Origin it comes from, the secret it carries.
import { isIP } from 'node:net';

/** An address cannot be rebound to another by DNS, a name can: so names must be known, and addresses need not be. */
export function hostAllowed(host: string | undefined, names: ReadonlySet<string>): boolean {
  const name = hostName(host);
  return name !== undefined && (name === 'localhost' || isIP(name) !== 0 || names.has(name));
}

/** A browser says where the page came from; only our own pages may call. Programs say nothing. */
export function originAllowed(origin: string | undefined, host: string | undefined): boolean {
  if (origin === undefined) return true;
  const url = URL.parse(origin);
  return url !== null && (url.protocol === 'http:' || url.protocol === 'https:') && url.host === host?.toLowerCase();
}

export function bearerOf(authorization: string | undefined): string | undefined {
  return /^Bearer ([\x21-\x7e]{1,1024})$/i.exec(authorization ?? '')?.[1];
}

/** A browser keeps one jar for all ports of a host, so gateways beside each other need cookies of different names. */
export const cookieName = (port: number | undefined) => `interlane-${port ?? 0}`;

export function cookieOf(header: string | undefined, port: number | undefined): string | undefined {
  if (header === undefined || header.length > 8192) return undefined;
  for (const part of header.split(';')) {
    const [name, value] = part.trim().split('=', 2);
    if (name === cookieName(port)) return value;
  }
  return undefined;
}

export function isLoopback(address: string): boolean {
  return address === 'localhost' || address === '::1' || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(address);
}

function hostName(host: string | undefined): string | undefined {
  if (host === undefined || host.length > 256) return undefined;
  const bracketed = /^\[([0-9a-f:.]+)\](?::\d{1,5})?$/i.exec(host);
  if (bracketed) return bracketed[1]!;
  return /^([^\s:/@\\]+)(?::\d{1,5})?$/.exec(host)?.[1]?.toLowerCase();
}
