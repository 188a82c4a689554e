#include "text/chat_builtin.h"

#include <stddef.h>
#include <string.h>

/* Written for this project from the published prompt formats. */
static const struct {
    const char *name, *text;
} rows[] = {
    {"chatml",
     "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
     "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"},
    {"llama3",
     "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
     "{{ m.content | trim }}<|eot_id|>{% endfor %}"
     "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"},
    {"mistral", "{{ bos_token }}{% for m in messages %}"
                "{% if m.role == 'system' %}{{ raise_exception('no system messages') }}"
                "{% elif m.role == 'assistant' %}{{ m.content | trim }}{{ eos_token }}"
                "{% else %}[INST] {{ m.content | trim }} [/INST]{% endif %}{% endfor %}"},
    {"gemma",
     "{{ bos_token }}{% for m in messages %}"
     "{% if m.role == 'system' %}{{ raise_exception('no system messages') }}{% endif %}"
     "<start_of_turn>{{ 'model' if m.role == 'assistant' else 'user' }}\n{{ m.content | trim }}"
     "<end_of_turn>\n{% endfor %}"
     "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"},
    {"phi3", "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
             "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"},
    {"zephyr",
     "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{{ eos_token }}\n{% endfor %}"
     "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"},
};

const char *chat_builtin(const char *name) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0) return rows[i].text;
    return NULL;
}

const char *chat_builtin_names(void) { return "chatml, llama3, mistral, gemma, phi3, zephyr"; }
