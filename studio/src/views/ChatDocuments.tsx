// ChatDocuments.tsx: the documents of this conversation, and which documents its answers read.
import { useEffect, useState } from "preact/hooks";
import { t } from "../i18n";
import { begin, chat, current, failed, model, setChat } from "../lib/state";
import { Dialog } from "./Dialog";
import { collections, Documents } from "./Documents";

export default function ChatDocuments({ close }: { close: () => void }) {
    const own = current.value ? `chat:${current.value.id}` : null;
    const read = chat.value.collection;
    const [names, setNames] = useState<string[]>([]);
    useEffect(() => {
        collections().then(setNames, failed);
    }, []);
    // A conversation with documents reads them, until the user says otherwise.
    const target = async () => {
        const id = await begin();
        if (!id) throw new Error(t("welcome.forgets"));
        if (!chat.value.collection) setChat({ collection: `chat:${id}` });
        return `chat:${id}`;
    };
    const emptied = () => {
        if (chat.value.collection === own) setChat({ collection: "" });
    };
    return (
        <Dialog title={t("chat.docs")} close={close} kind="wide">
            <p class="quiet">{t("chat.docs.about")}</p>
            <label class="field">
                <span>{t("chat.docs.read")}</span>
                <select value={read} onChange={(e) => setChat({ collection: e.currentTarget.value })}>
                    <option value="">{t("docs.all")}</option>
                    {own ? <option value={own}>{t("chat.docs.own")}</option> : null}
                    {[...new Set([...names, ...(read && read !== own ? [read] : [])])].map((x) => <option key={x} value={x}>{x}</option>)}
                </select>
            </label>
            {/^odo(:|$)/.test(model.value) ? null : <p class="quiet">{t("chat.docs.odo")}</p>}
            <Documents collection={own} target={target} emptied={emptied} />
        </Dialog>
    );
}
