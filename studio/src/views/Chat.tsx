// Chat.tsx: the conversation.
import { signal } from "@preact/signals";
import { t } from "../i18n";
import { hosts } from "../lib/audio";
import { byServer, goesOut, voice } from "../lib/speech";
import { current, keeps, loading, model, models, path, setChat, tree } from "../lib/state";
import { ChatPanel } from "./ChatPanel";
import { Composer } from "./Composer";
import { IconButton } from "./icons";
import { opened } from "./Opened";
import { Turn } from "./Turn";
import { VirtualList } from "./VirtualList";

export const panelOpen = signal(false);

function ModelPicker() {
    const list = models.value;
    return (
        <div class="model-picker">
            <select aria-label={t("model")} value={model.value} onChange={(e) => setChat({ model: e.currentTarget.value })}>
                {list.some((m) => m.id === model.value) ? null : <option value={model.value}>{model.value}</option>}
                {list.map((m) => (
                    <option key={m.id} value={m.id}>{m.id}</option>
                ))}
            </select>
        </div>
    );
}

function Welcome() {
    const tips = ["welcome.one", "welcome.two", "welcome.three"] as const;
    return (
        <div class="welcome">
            <img src="/studio/icon.svg" alt="" width="52" height="52" />
            <h2>{t("welcome")}</h2>
            {model.value ? <p class="quiet">{t("welcome.about", { model: model.value })}</p> : null}
            <ul>
                {tips.map((tip) => (
                    <li key={tip} class={tip === "welcome.two" ? "with-keys" : undefined}>{t(tip)}</li>
                ))}
            </ul>
            {keeps.value ? null : <p class="quiet">{t("welcome.forgets")}</p>}
        </div>
    );
}

function smallPrint(): string {
    const { transcriptions, speech } = hosts.value;
    const out = [...new Set([transcriptions, byServer.value ? speech : null])].filter((x) => x !== null);
    if (goesOut.value) return t("small.print.voice", { name: voice.value!.name });
    return out.length ? t("small.print.audio", { host: out.join(", ") }) : t("small.print");
}

export function Chat({ menu }: { menu: () => void }) {
    const title = current.value?.title ?? t("chat.new");
    return (
        <div class="chat">
            <header class="top">
                <IconButton icon="menu" name={t("menu")} kind="only-narrow" act={menu} />
                <h1 class="title">{title}</h1>
                {path.value.length && tree.value.hasBranches ? <IconButton icon="branch" name={t("branches")} act={() => (opened.value = { kind: "branches" })} /> : null}
                {keeps.value ? <IconButton icon="book" name={t("chat.docs")} act={() => (opened.value = { kind: "documents" })} /> : null}
                <ModelPicker />
                <IconButton icon="sliders" name={t("chat.settings")} expanded={panelOpen.value} act={() => (panelOpen.value = !panelOpen.value)} />
            </header>
            <div class="chat-body">
                <div class="chat-main">
                    {path.value.length ? (
                        <VirtualList items={path.value} name={t("messages")} resetKey={current.value?.id ?? ""} id={(x) => x.id}>
                            {(turn) => <Turn turn={turn} />}
                        </VirtualList>
                    ) : (
                        <div class="scroller">{loading.value ? <p class="quiet centre">{t("loading")}</p> : <Welcome />}</div>
                    )}
                    <Composer />
                    <p class="small-print">{smallPrint()}</p>
                </div>
                {panelOpen.value ? <ChatPanel close={() => (panelOpen.value = false)} /> : null}
            </div>
        </div>
    );
}
