// steps.ts: the text of a pipeline -> its steps as a graph. The server has checked the text; what is written in YAML's flow
// form is not seen here and shows as one step.
import { t } from "../i18n";
import { layOut, type Graph } from "./graph";

const MOST = 40;
export function graphOf(text: string): Graph {
    const lines = text.split("\n").filter((l) => l.trim() && !/^\s*#/.test(l));
    const groups: string[][] = [];
    let inSteps = false;
    let parallel = -1; // indentation of a group that is open
    for (const line of lines) {
        if (/^\S/.test(line) && !/^-/.test(line)) inSteps = /^steps:/.test(line);
        if (!inSteps) continue;
        const indent = line.search(/\S/);
        if (parallel >= 0 && indent <= parallel) parallel = -1;
        if (/^\s*-\s*parallel:/.test(line)) {
            parallel = indent;
            groups.push([]);
            continue;
        }
        const agent = /^\s*-\s*\{?\s*agent:\s*["']?([^"',}#]+)/.exec(line)?.[1].trim();
        if (!agent) continue;
        if (parallel >= 0) groups[groups.length - 1].push(agent);
        else groups.push([agent]);
    }
    const has = (pattern: RegExp) => pattern.test(lines.join("\n"));
    const looked = [...(has(/^\s+documents:\s*true/m) || has(/enrich:.*documents:\s*true/) ? [t("pipe.step.documents")] : []), ...(has(/\bweb:\s*(probe|always)/) ? [t("pipe.step.web")] : [])];
    const layers = [[t("pipe.step.question")], looked, has(/^plan:[^\n]*\n?\s*[^\n]*enabled:\s*true/m) ? [t("pipe.step.plan")] : [], ...(groups.length ? groups.slice(0, MOST) : [[t("pipe.step.model")]]), [t("pipe.step.answer")]].filter((l) => l.length);
    return layOut(layers);
}
