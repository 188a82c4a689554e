/* hf_source.h: a matrix of a checkpoint as rows of floats, independent of its storage form.
 *
 * Supports FP8 (scales per tensor, row, group of columns or block), int8, MXFP4, NVFP4, GPTQ, AWQ, bitsandbytes and the
 * packed form of compressed-tensors. Sources are views of the checkpoint, valid while it is open; any number of threads
 * may decode. */
#ifndef CHIMERE_CONVERT_HF_SOURCE_H
#define CHIMERE_CONVERT_HF_SOURCE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "format/safetensors.h"

enum hf_form {
    HF_PLAIN,  /* floats */
    HF_SCALED, /* FP8 or int8 times a scale per tensor, row, group of columns or block */
    HF_PACKED, /* compressed-tensors: 4- or 8-bit codes in 32-bit words along a row */
    HF_GPTQ,
    HF_AWQ,
    HF_MXFP4,
    HF_NVFP4,
    HF_BNB4, /* bitsandbytes; its int8 form is HF_SCALED */
};

enum { HF_MAX_PARTS = 5 };

struct hf_source {
    const struct st_tensor *t; /* values or codes */
    enum hf_form form;
    const struct st_tensor *part[HF_MAX_PARTS]; /* scales, zero points and so on; NULL: absent */
    uint32_t n_dims;
    uint64_t shape[ST_MAX_DIMS]; /* as a plain tensor would have, slowest first */
    uint32_t bits;               /* per code */
    uint64_t block[2];           /* rows and columns that share a scale */
    float scale;                 /* for all values */
    int32_t zero_offset;         /* added to stored zero points */
    float nested_offset;         /* of scales that are stored as codes */
    uint64_t nested_block;
};

/* The tensor with the values or codes for the given name; NULL: none. */
const struct st_tensor *hf_source_find(const struct safetensors *st, const char *name);
/* Describes t and finds its parts. quantization: config.json's quantization_config, or NULL. Refuses unsupported
 * types and parts that do not match. */
int hf_source_open(struct hf_source *s, const struct safetensors *st, const struct st_tensor *t,
                   const json_t *quantization, struct err *e);
/* Row r of n_col floats; r counts over all matrices of a stack. */
void hf_source_row(const struct hf_source *s, uint64_t r, float *out, uint64_t n_col);
/* out [n]: column c of the n rows from row r; a row has n_col floats. For plain floats and HF_SCALED. */
void hf_source_column(const struct hf_source *s, uint64_t r, uint64_t n, uint64_t c, float *out,
                      uint64_t n_col);

#endif
