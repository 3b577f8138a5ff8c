// The package is of type module. This file says that the part for `require` is CommonJS.
import { writeFileSync } from "node:fs";

writeFileSync(new URL("dist/cjs/package.json", import.meta.url), '{"type": "commonjs"}\n');
