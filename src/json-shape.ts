// The shape of JSON, counted while its bytes arrive: how deep it is nested, and how many values and keys it has. Parsing takes far longer.

export interface ShapeLimits {
  depth: number;
  values: number;
  /** Of all objects together. A key takes longer to parse than a value. */
  keys?: number;
}

/** Each byte is looked at once. Text that is no JSON counts somehow. */
export class JsonShape {
  depth = 0;
  values = 1;
  keys = 0;
  private inString = false;
  private escaped = false;
  private readonly limits: ShapeLimits;

  constructor(limits: ShapeLimits) {
    this.limits = limits;
  }

  /** What is too much, as the end of a sentence; undefined while it is fine. Bytes after that are not looked at. */
  add(bytes: Uint8Array): string | undefined {
    let { depth, values, keys, inString, escaped } = this;
    const { limits } = this;
    const { keys: mostKeys = Infinity } = limits;
    let at = 0;
    for (; at < bytes.length && depth <= limits.depth && values <= limits.values && keys <= mostKeys; at++) {
      const byte = bytes[at];
      if (inString) {
        if (escaped) escaped = false;
        else if (byte === 0x5c) escaped = true;
        else if (byte === 0x22) inString = false;
        continue;
      }
      switch (byte) {
        case 0x22: // "
          inString = true;
          break;
        case 0x5b: // [
        case 0x7b: // {
          values++;
          depth++;
          break;
        case 0x5d: // ]
        case 0x7d: // }
          depth--;
          break;
        case 0x2c: // ,
          values++;
          break;
        case 0x3a: // :
          keys++;
          break;
        default:
      }
    }
    Object.assign(this, { depth, values, keys, inString, escaped });
    if (depth > limits.depth) return `is nested deeper than ${limits.depth} levels`;
    if (values > limits.values) return `has more than ${limits.values} values`;
    if (keys > mostKeys) return `has more than ${mostKeys} keys`;
    return undefined;
  }

  /** For the next text. */
  restart(): void {
    this.depth = 0;
    this.values = 1;
    this.keys = 0;
    this.inString = false;
    this.escaped = false;
  }
}
