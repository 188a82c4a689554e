import { computed, effect } from "@preact/signals";
import { settings } from "../lib/settings";
import en from "./en.json";
import fr from "./fr.json";

export type Word = keyof typeof en;
const all: Record<string, Record<Word, string>> = { en, fr };

export const language = computed(() => {
    const wanted = settings.value.language;
    if (wanted !== "system") return wanted;
    return navigator.language.startsWith("fr") ? "fr" : "en";
});
effect(() => {
    document.documentElement.lang = language.value;
});

export function t(word: Word, values?: Record<string, string | number>): string {
    const one = values && String(values.n) === "1" ? all[language.value][`${word}.one` as Word] : undefined;
    const text = one ?? all[language.value][word] ?? en[word];
    return values ? text.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? "")) : text;
}
// A word that the server says and that has a name here; else the word itself.
export function named(kind: "v" | "is" | "unit" | "night.about", word: string, other = word.replace(/_/g, " ")): string {
    return all[language.value][`${kind}.${word}` as Word] ?? other;
}
// A reason that the server states in English, with numbers in it; the words of it are looked up without the numbers.
export function reason(text: string): string {
    const figures: string[] = [];
    const key = text.replace(/[+-]?\d+(?:\.\d+)?/g, (x) => (figures.push(x), "#"));
    let i = 0;
    return all[language.value][`why.${key}` as Word]?.replace(/#/g, () => number(Number(figures[i++]), 4)) ?? text;
}
export function number(n: number, digits = 0): string {
    return n.toLocaleString(language.value, { maximumFractionDigits: digits });
}
export function bytes(n: number): string {
    const units = language.value === "fr" ? ["o", "Ko", "Mo", "Go", "To"] : ["B", "KB", "MB", "GB", "TB"];
    let i = 0;
    while (n >= 1000 && i + 1 < units.length) {
        n /= 1000;
        i++;
    }
    return `${number(n, n < 10 && i ? 1 : 0)} ${units[i]}`;
}
export function when(ms: number): string {
    const day = new Date(ms);
    const today = new Date();
    const same = day.toDateString() === today.toDateString();
    return day.toLocaleString(language.value, same ? { hour: "2-digit", minute: "2-digit" } : { dateStyle: "medium", timeStyle: "short" });
}
