/* cmd_doctor.c: build, processor, libraries, and every option with its value and origin. */
#include <jansson.h>
#include <stdio.h>
#include <libxml/xmlversion.h>
#include <microhttpd.h>
#include <sqlite3.h>
#include <string.h>
#include <utf8proc.h>
#include <yaml.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/digest.h"
#include "base/os/features.h"
#include "base/os/fs.h"
#include "base/os/os.h"
#include "base/str.h"
#include "base/os/topology.h"
#include "cli/chat/chat_input.h"
#include "cli/cli.h"
#include "engram/vec.h"
#include "cli/args/hub_args.h"
#include "kernels/cpu/cpu.h"
#include "llama/llama_lib.h"
#include "net/fetch.h"

const struct cfg_opt doctor_options[] = {{0}};

static void show_build(void) {
    puts("build");
    printf("  version   %s\n  compiler  %s\n  preset    %s\n  cuda      %s\n", CLI_VERSION,
           __VERSION__, CHIMERE_PRESET,
#ifdef CHIMERE_CUDA
           "yes"
#else
           "no (CPU only: no CUDA toolkit 12.8 or newer was found at build time)"
#endif
    );
}

static void show_cpu(void) {
    puts("machine");
    char system[512];
    os_version(system, sizeof system);
    printf("  system    %s\n", system);
    printf("  cores     %ld online\n", os_cores());
    char mem[16];
    str_bytes(mem, os_memory_bytes());
    printf("  memory    %s\n  features ", mem);
    const char *name;
    for (int i = 0; (name = features_name(i)); i++)
        if (features_has(name)) printf(" %s", name);
    putchar('\n');
    struct topology t;
    char why[160];
    topology_read(NULL, NULL, -1, &t);
    topology_explain(&t, why, sizeof why);
    printf("  kernels   %s\n  threads   %s\n", cpu_isa_best_name(), why);
    FILE *f = fopen("/proc/driver/nvidia/version", "r");
    char line[160];
    if (f && fgets(line, sizeof line, f)) printf("  gpu       %s", line);
    else puts("  gpu       none");
    if (f) fclose(f);
}

static void show_llama(void) {
    const struct llama_shim *shim;
    struct err e = {0};
    char path[4096];
    if (llama_lib_find(path, sizeof path, &e))
        puts("  libllama  no (build with -DCHIMERE_LLAMA_DIR=DIR: further families by your "
             "llama.cpp)");
    else if (llama_lib_open(&shim, path, NULL, &e)) printf("  libllama  no: %s\n", e.text);
    else
        printf("  libllama  yes: %s, by %s\n  libmtmd   %s\n", shim->library(), path,
               shim->image_open ? "yes: images by --mmproj"
                                : "no: it was not in the folder that libllama is from");
}

static void show_libraries(void) {
    char pcre[64], editor[32];
    chat_input_editor(editor, sizeof editor);
    pcre2_config(PCRE2_CONFIG_VERSION, pcre);
    puts("libraries");
    printf("  jansson   %s\n  libyaml   %s\n  pcre2     %s\n  utf8proc  %s\n  libcrypto %s\n",
           JANSSON_VERSION, yaml_get_version_string(), pcre, utf8proc_version(), digest_library());
    printf("  libedit   %s\n  sqlite    %s\n  libcurl   %s\n  microhttpd %s\n", editor,
           sqlite3_libversion(), fetch_version(), MHD_get_version());
    printf("  faiss     %s\n",
           engram_vec_has_faiss() ? "yes" : "no (a search compares all vectors)");
    printf("  libxml2   %s\n", LIBXML_DOTTED_VERSION);
    show_llama();
    puts("programs");
    printf("  pdftotext %s\n", fs_can_run("/usr/bin/pdftotext")
                                   ? "yes"
                                   : "no (PDF is not indexed: that needs poppler-utils)");
}

static int show_table(const char *name, const struct cfg_opt *options, struct err *e) {
    static const char *const origins[] = {"default", "file", "environment", "flag"};
    char program[] = "chimere";
    char *argv[] = {program, NULL};
    const struct cfg_opt *const tables[] = {options, NULL};
    struct cfg *c;
    int rc = cfg_parse(&c, tables, "", 1, argv, e);
    if (rc) return rc;
    printf("options of %s\n", name);
    for (const struct cfg_opt *o = options; o->name; o++) {
        bool set = cfg_is_set(c, o->name);
        printf("  %-18s %-24s %s\n", o->name, set ? cfg_text(c, o->name) : "(unset)",
               origins[cfg_origin(c, o->name)]);
    }
    cfg_free(c);
    return 0;
}

static int show_options(struct err *e) {
    int rc = show_table("every command with a model", hub_options, e);
    for (const struct cli_command *cmd = cli_commands; !rc && cmd->name; cmd++)
        if (cmd->options && cmd->options->name) rc = show_table(cmd->name, cmd->options, e);
    return rc;
}

int cmd_doctor(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(&c, doctor_options, "usage: chimere doctor", argc, argv, &status)) return status;
    cfg_free(c);
    show_build();
    show_cpu();
    show_libraries();
    struct err e = {0};
    return show_options(&e) ? cli_fail(&e) : 0;
}
