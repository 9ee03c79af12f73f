// The tools of an AI SDK agent, gated: this is all that an application adds.

import { asSchema } from "ai";

/** Each tool asks before it runs; a replacement goes through its tool's own schema. */
export function gatedTools(guard, tools) {
  return guard.tools(tools, {
    schemaOf: (one) => asSchema(one.inputSchema).jsonSchema,
    validateOf: (one) => async (args) => {
      const checked = await asSchema(one.inputSchema).validate?.(args);
      if (checked && !checked.success) throw checked.error;
      return checked ? checked.value : args;
    },
  });
}
