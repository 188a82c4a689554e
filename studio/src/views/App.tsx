// App.tsx: the frame around the screens: sidebar, keyboard, dialogs, what is announced.
import { effect, untracked } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { t } from "../i18n";
import { ApiError, needsKey, online } from "../lib/api";
import { shown as artifact } from "../lib/artifacts";
import { look, outdated, renew, renewIfIdle } from "../lib/fresh";
import { change, settings } from "../lib/settings";
import { loadAudio } from "../lib/audio";
import { hush, speaking } from "../lib/speech";
import { announcement, failed, loadConversations, loadModels, notice, open, startNew, stop, writing } from "../lib/state";
import { drawer, go, route, type ScreenName } from "../lib/route";
import { Chat } from "./Chat";
import { focusComposer } from "./Composer";
import { Opened, opened } from "./Opened";
import { Palette, paletteOpen } from "./Palette";
import { KeyDialog, SettingsDialog, settingsOpen } from "./Settings";
import { showSearch, Sidebar } from "./Sidebar";
import { SourceDialog } from "./Source";

async function begin(): Promise<void> {
    try {
        await loadModels();
        void loadAudio();
        await loadConversations();
    } catch (e) {
        if (!(e instanceof ApiError && e.code === "offline")) failed(e);
    }
}

function onKey(e: KeyboardEvent): void {
    const mod = e.ctrlKey || e.metaKey;
    if (e.key === "Escape" && speaking.value) hush();
    else if (e.key === "Escape" && drawer.value && !document.querySelector("dialog[open]")) drawer.value = false;
    else if (e.key === "Escape" && writing.value && !document.querySelector("dialog[open]")) stop();
    else if (mod && e.key.toLowerCase() === "k") paletteOpen.value = !paletteOpen.value;
    else if (mod && e.key.toLowerCase() === "b") change({ sidebar: !settings.value.sidebar });
    else if (mod && e.shiftKey && e.key.toLowerCase() === "o") {
        startNew();
        focusComposer.value++;
    } else if (mod && e.shiftKey && e.key.toLowerCase() === "f") showSearch();
    else if (mod && e.key === ",") settingsOpen.value = true;
    else return;
    if (e.key !== "Escape") e.preventDefault();
}

export function App() {
    useLayoutEffect(() => {
        void begin();
        window.addEventListener("keydown", onKey);
        const again = window.setInterval(() => {
            if (!online.value) void begin(); // the server was gone
            else if (document.visibilityState === "visible") void look();
            renewIfIdle();
        }, 3000);
        const stopRoute = effect(() => {
            const r = route.value;
            if (r.screen === "chat" && r.id) untracked(() => void open(r.id)); // what it reads is no reason to open again
        });
        const stopLook = effect(() => {
            if (online.value) untracked(() => void look(true)); // whichever request found the server again
        });
        const title = effect(() => {
            document.title = `Chimère — ${t(`screen.${route.value.screen}`)}`;
        });
        if ("serviceWorker" in navigator && window.isSecureContext) void register();
        return () => {
            window.removeEventListener("keydown", onKey);
            clearInterval(again);
            stopRoute();
            stopLook();
            title();
        };
    }, []);
    const leave = () => (drawer.value = false);
    return (
        <div class={`app ${settings.value.sidebar ? "" : "no-sidebar"} ${drawer.value ? "drawer" : ""}`}>
            <a class="skip" href="#composer" onClick={(e) => { e.preventDefault(); go("#/"); focusComposer.value++; }}>{t("skip")}</a>
            <Sidebar leave={leave} />
            {drawer.value ? <button type="button" class="shade" aria-label={t("close")} onClick={leave} /> : null}
            <main>
                {online.value ? null : <p class="banner" role="alert">{t("offline")}</p>}
                {outdated.value ? <p class="banner calm" role="status">{t("upgraded")} <button type="button" class="button" onClick={renew}>{t("upgraded.load")}</button></p> : null}
                {route.value.screen === "chat" ? <Chat menu={() => (drawer.value = true)} /> : <Other screen={route.value.screen} />}
            </main>
            <p class="offscreen" role="status" aria-live="polite">{settings.value.announce ? announcement.value : ""}</p>
            <p class={`notice ${notice.value ? "shown" : ""}`} role="status">{notice.value}</p>
            {paletteOpen.value ? <Palette /> : null}
            {settingsOpen.value ? <SettingsDialog /> : null}
            {needsKey.value ? <KeyDialog /> : null}
            <SourceDialog />
            {opened.value ? <Opened key={opened.value.kind} /> : null}
            {artifact.value ? <Shown /> : null}
        </div>
    );
}

// Screens that are read when they are first shown.
const parts: Record<Exclude<ScreenName, "chat">, () => Promise<{ default: ComponentType }>> = {
    knowledge: () => import("./Knowledge"),
    models: () => import("./Models"),
    insight: () => import("./Insight"),
    pipelines: () => import("./Pipelines"),
    admin: () => import("./Admin"),
};
function Other({ screen }: { screen: Exclude<ScreenName, "chat"> }) {
    const [part, setPart] = useState<{ screen: string; View: ComponentType } | null>(null);
    useEffect(() => {
        let wanted = true;
        parts[screen]().then(
            (m) => wanted && setPart({ screen, View: m.default }),
            () => {
                void look(true); // maybe it has other parts now
                if (wanted) failed(new ApiError("offline", 0, "offline", 0));
            },
        );
        return () => void (wanted = false);
    }, [screen]);
    return part?.screen === screen ? <part.View /> : <p class="quiet centre">{t("loading")}</p>;
}

let artifactPart: Promise<typeof import("./Artifact")> | null = null;
function Shown() {
    const [part, setPart] = useState<typeof import("./Artifact") | null>(null);
    useEffect(() => {
        artifactPart ??= import("./Artifact");
        artifactPart.then(setPart, () => {
            artifactPart = null;
            artifact.value = null;
            void look(true);
            failed(new ApiError("offline", 0, "offline", 0));
        });
    }, []);
    return part && artifact.value ? <part.default artifact={artifact.value} close={() => (artifact.value = null)} /> : null;
}

async function register(): Promise<void> {
    const policy = (window as any).trustedTypes?.createPolicy("studio", {
        createScriptURL: (url: string) => {
            if (url !== "/studio/sw.js") throw new TypeError("not a worker of this page");
            return url;
        },
    });
    try {
        await navigator.serviceWorker.register(policy ? policy.createScriptURL("/studio/sw.js") : "/studio/sw.js", { scope: "/" });
    } catch {
        // the page works without it
    }
}
