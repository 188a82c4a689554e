// files.ts: what is attached to a message: text as it is, images as data for models that see. Bounded.
import { t } from "../i18n";
import { upload } from "./api";
import type { Attachment } from "./tree";

const MAX_TEXT = 2 << 20;
const MAX_IMAGE = 8 << 20;
const MAX_FILE = 15 << 20; // that the server reads

export async function attach(file: File): Promise<Attachment> {
    const base = { name: file.name || "file", type: file.type, bytes: file.size };
    if (/^image\/(png|jpeg|webp|gif)$/.test(file.type)) {
        if (file.size > MAX_IMAGE) throw new Error(t("file.large", { name: base.name }));
        const data = new Uint8Array(await file.arrayBuffer());
        let text = "";
        for (let i = 0; i < data.length; i += 8192) text += String.fromCharCode(...data.subarray(i, i + 8192));
        return { ...base, url: `data:${file.type};base64,${btoa(text)}` };
    }
    if (/\.(pdf|html?)$/i.test(base.name)) {
        if (file.size > MAX_FILE) throw new Error(t("file.large", { name: base.name }));
        const got = await upload<{ text: string; is_cut: boolean }>(`/chimere/v1/extract?${new URLSearchParams({ name: base.name })}`, file);
        if (!got.text.trim()) throw new Error(t("file.empty", { name: base.name }));
        return { ...base, text: got.text.slice(0, MAX_TEXT) };
    }
    if (file.size > MAX_TEXT) throw new Error(t("file.large", { name: base.name }));
    const data = new Uint8Array(await file.arrayBuffer());
    if (data.includes(0)) throw new Error(t("file.binary", { name: base.name }));
    return { ...base, text: new TextDecoder().decode(data) };
}

// What was dropped: files, and those in folders, by their paths. Bounded.
const MAX_DROPPED = 5000;
export async function filesOf(data: DataTransfer): Promise<{ name: string; file: File }[]> {
    const out: { name: string; file: File }[] = [];
    const roots = [...data.items].map((x) => x.webkitGetAsEntry?.()).filter((x) => x !== null && x !== undefined);
    if (!roots.length) return [...data.files].map((file) => ({ name: file.name, file }));
    const next: FileSystemEntry[] = roots.reverse();
    for (let e = next.pop(); e && out.length < MAX_DROPPED; e = next.pop()) {
        if (e.name.startsWith(".")) continue;
        if (e.isFile) {
            const file = await new Promise<File | null>((ok) => (e as FileSystemFileEntry).file(ok, () => ok(null)));
            if (file) out.push({ name: e.fullPath.replace(/^\//, ""), file });
            continue;
        }
        const reader = (e as FileSystemDirectoryEntry).createReader();
        for (;;) {
            const some = await new Promise<FileSystemEntry[]>((ok) => reader.readEntries(ok, () => ok([])));
            if (!some.length) break;
            next.push(...some.reverse());
        }
    }
    return out;
}
