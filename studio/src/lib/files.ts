// files.ts: what is attached to a message: text as it is, images as data for models that see. Bounded.
import { t } from "../i18n";
import type { Attachment } from "./tree";

const MAX_TEXT = 2 << 20;
const MAX_IMAGE = 8 << 20;

export async function attach(file: File): Promise<Attachment> {
    const base = { name: file.name || "file", type: file.type, bytes: file.size };
    if (/^image\/(png|jpeg|webp|gif)$/.test(file.type)) {
        if (file.size > MAX_IMAGE) throw new Error(t("file.large", { name: base.name }));
        const data = new Uint8Array(await file.arrayBuffer());
        let text = "";
        for (let i = 0; i < data.length; i += 8192) text += String.fromCharCode(...data.subarray(i, i + 8192));
        return { ...base, url: `data:${file.type};base64,${btoa(text)}` };
    }
    if (file.size > MAX_TEXT) throw new Error(t("file.large", { name: base.name }));
    const data = new Uint8Array(await file.arrayBuffer());
    if (data.includes(0)) throw new Error(t("file.binary", { name: base.name }));
    return { ...base, text: new TextDecoder().decode(data) };
}
