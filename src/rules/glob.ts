// Patterns with `*` for any text: anchored, case-insensitive, one pass over the text.

export function matchesGlob(pattern: string, text: string): boolean {
  const [head = '', ...rest] = pattern.trim().toLowerCase().split('*');
  const subject = text.toLowerCase();
  const tail = rest.pop();
  if (tail === undefined) return subject === head;
  const end = subject.length - tail.length;
  if (!subject.startsWith(head) || !subject.endsWith(tail) || end < head.length) return false;
  let at = head.length;
  for (const piece of rest) {
    // Leftmost is enough: taking a piece as early as possible leaves the most room for the ones after it.
    const found = subject.indexOf(piece, at);
    if (found < 0 || found + piece.length > end) return false;
    at = found + piece.length;
  }
  return true;
}
