// Artifact.tsx: what code of an answer makes: a page or a drawing in a frame without network and storage, a diagram, or the
// output of a program that the server runs in its sandbox.
import "../style/artifact.css";
import mermaidUrl from "@mermaid-js/tiny/dist/mermaid.tiny.js?url";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { t } from "../i18n";
import { post } from "../lib/api";
import { isShown, type Artifact } from "../lib/artifacts";
import { save } from "../lib/exchange";
import { Dialog } from "./Dialog";

const SILENT_MS = 10_000; // a frame that does not answer for so long is ended
const LOOK_MS = 1000;
const MOST_ERRORS = 20;

// Answers the watch, and reports errors. It runs in the frame, before what the model wrote.
const inside = `<script>addEventListener("message",function(e){if(e.data==="ping")parent.postMessage({kind:"pong"},"*")});
addEventListener("error",function(e){parent.postMessage({kind:"error",text:String(e.message).slice(0,300)},"*")});</script>`;

function Frame({ artifact }: { artifact: Artifact }) {
    const frame = useRef<HTMLIFrameElement>(null);
    const [ended, setEnded] = useState("");
    const [errors, setErrors] = useState<string[]>([]);
    // before the frame can say that it is ready: an effect after the paint comes too late on a busy machine
    useLayoutEffect(() => {
        let heard = performance.now();
        let sent = false;
        const listen = (e: MessageEvent) => {
            if (!frame.current || e.source !== frame.current.contentWindow) return;
            const kind = e.data?.kind;
            if (kind === "ready" && !sent) {
                sent = true;
                heard = performance.now();
                const style = artifact.kind === "svg" ? "<style>body{margin:0;display:grid;place-items:center;min-height:100vh;background:#fff}svg{max-width:100%;max-height:100vh}</style>" : "";
                frame.current.contentWindow!.postMessage({ html: `<!doctype html>${inside}${style}${artifact.text}` }, "*");
            } else if (kind === "pong") heard = performance.now();
            else if (kind === "error" && typeof e.data.text === "string") setErrors((list) => (list.length < MOST_ERRORS ? [...list, e.data.text.slice(0, 300)] : list));
        };
        const watch = window.setInterval(() => {
            if (document.hidden) heard = performance.now(); // timers of a hidden page are slow
            if (performance.now() - heard > SILENT_MS) setEnded(t("artifact.silent"));
            else frame.current?.contentWindow?.postMessage("ping", "*");
        }, LOOK_MS);
        window.addEventListener("message", listen);
        return () => {
            clearInterval(watch);
            window.removeEventListener("message", listen);
        };
    }, []);
    return (
        <>
            {ended ? <p class="quiet artifact-ended" role="status">{ended}</p> : <iframe ref={frame} class="artifact" src="/studio/artifact.html" sandbox="allow-scripts" title={t("artifact.frame")} />}
            <div class="row">
                <p class="quiet artifact-about">{t("artifact.about")}</p>
                {ended ? null : <button type="button" class="button" onClick={() => setEnded(t("artifact.ended"))}>{t("artifact.stop")}</button>}
            </div>
            {errors.length ? <pre class="plain" tabIndex={0} role="region" aria-label={t("artifact.errors")}>{errors.join("\n")}</pre> : null}
        </>
    );
}

// A diagram is drawn inside the frame too, because its text is hostile. The page fetches the library, as the frame cannot.
function Diagram({ text }: { text: string }) {
    const [html, setHtml] = useState("");
    const [error, setError] = useState("");
    useEffect(() => {
        const stop = new AbortController();
        fetch(mermaidUrl, { signal: stop.signal }).then(async (got) => {
            if (!got.ok) throw new Error(`${got.status} ${got.statusText}`);
            const quoted = JSON.stringify(text).replaceAll("<", "\\u003c");
            setHtml(`<style>body{margin:0;display:grid;place-items:center;min-height:100vh;background:#fff;font-family:sans-serif}svg{max-height:100vh}</style><body>
<script>${(await got.text()).replace(/<(?=!--|\/script)/gi, "\\x3c")}</script>
<script>mermaid.initialize({startOnLoad:false,securityLevel:"strict",suppressErrorRendering:true});
mermaid.render("diagram",${quoted}).then(function(d){document.body.innerHTML=d.svg},function(e){parent.postMessage({kind:"error",text:String(e.message||e).slice(0,300)},"*")})</script>`);
        }).catch((e: Error) => e.name !== "AbortError" && setError(e.message));
        return () => stop.abort();
    }, [text]);
    if (error) return <p class="error" role="alert">{error}</p>;
    return html ? <Frame artifact={{ kind: "html", text: html }} /> : <p class="quiet" role="status"><span class="pulse">{t("artifact.drawing")}</span></p>;
}

// Lines of the output that are pictures, and the rest.
const picture = /^data:image\/(?:png|jpeg|webp|gif);base64,[A-Za-z0-9+/]+={0,2}$/;
export function partsOf(output: string): { pictures: string[]; text: string } {
    const lines = output.split("\n");
    return { pictures: lines.filter((l) => picture.test(l)).slice(0, 20), text: lines.filter((l) => !picture.test(l)).join("\n") };
}

// What a figure of matplotlib would show in a window comes as such lines.
const figures = `
import sys as _sys
if "matplotlib.pyplot" in _sys.modules:
    import base64 as _b, io as _io, matplotlib.pyplot as _plt
    for _n in _plt.get_fignums():
        _f = _io.BytesIO()
        _plt.figure(_n).savefig(_f, format="png", dpi=110)
        print("\\ndata:image/png;base64," + _b.b64encode(_f.getvalue()).decode())
`;

function Program({ artifact }: { artifact: Artifact }) {
    const [result, setResult] = useState<{ output?: string; error?: string } | null>(null);
    useEffect(() => {
        const stop = new AbortController();
        post<{ output: string }>("/chimere/v1/run", { language: artifact.kind, code: artifact.kind === "python" && artifact.text.includes("matplotlib") ? artifact.text + figures : artifact.text }, stop.signal).then(setResult, (e: Error) => e.name !== "AbortError" && setResult({ error: e.message }));
        return () => stop.abort();
    }, []);
    if (!result) return <p class="quiet" role="status"><span class="pulse">{t("artifact.running")}</span></p>;
    if (result.error) return <p class="error" role="alert">{result.error}</p>;
    const { pictures, text } = partsOf(result.output ?? "");
    const drawing = /^\s*(<\?xml[^>]*>\s*)?<svg[\s>]/.test(text);
    return (
        <>
            {pictures.map((src, i) => <img key={i} class="artifact-picture" src={src} alt={t("artifact.picture", { n: i + 1 })} />)}
            {drawing ? <Frame artifact={{ kind: "svg", text }} /> : null}
            {text.trim() || !pictures.length ? <pre class="plain" tabIndex={0} role="region" aria-label={t("artifact.output")}>{text.trim() ? text : t("artifact.nothing")}</pre> : null}
        </>
    );
}

const files: Record<Artifact["kind"], [string, string]> = {
    html: ["page.html", "text/html"], svg: ["drawing.svg", "image/svg+xml"], diagram: ["diagram.mmd", "text/plain"],
    python: ["program.py", "text/plain"], javascript: ["program.js", "text/plain"], shell: ["program.sh", "text/plain"],
};
export default function ArtifactDialog({ artifact, close }: { artifact: Artifact; close: () => void }) {
    const [code, setCode] = useState(false);
    const [turn, setTurn] = useState(0);
    const shows = isShown(artifact.kind);
    const [name, type] = files[artifact.kind];
    return (
        <Dialog title={t(shows ? "artifact" : "artifact.output")} close={close} kind="wide">
            <div class="row artifact-bar">
                <button type="button" class="button" aria-pressed={!code} onClick={() => setCode(false)}>{t(shows ? "artifact.preview" : "artifact.output")}</button>
                <button type="button" class="button" aria-pressed={code} onClick={() => setCode(true)}>{t("artifact.code")}</button>
                <span class="grow" />
                <button type="button" class="button" onClick={() => { setCode(false); setTurn(turn + 1); }}>{t("artifact.again")}</button>
                <button type="button" class="button" onClick={() => save(name, type, artifact.text)}>{t("artifact.save")}</button>
            </div>
            {code ? <pre class="plain" tabIndex={0} role="region" aria-label={t("artifact.code")}>{artifact.text}</pre> : null}
            <div hidden={code} key={turn}>
                {artifact.kind === "diagram" ? <Diagram text={artifact.text} /> : shows ? <Frame artifact={artifact} /> : <Program artifact={artifact} />}
            </div>
        </Dialog>
    );
}
