// Something in a config that cannot work or is probably not meant. The rules, the models and the checks of a setup return these.
export interface Finding {
  path: PropertyKey[];
  /** The sentence after the setting and its value, without a full stop. */
  says: string;
  /** What was probably meant. */
  meant?: string | undefined;
  /** The gateway does not start with it. */
  refuses?: true;
  /** The mistake is the name at the end of the path, not its value. */
  inName?: true;
}
