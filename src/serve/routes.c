/* routes.c: one row per route. */
#include "serve/api.h"
#include "serve/native.h"

/* clang-format off */
const struct route routes[] = {
    {"POST", "/v1/chat/completions", 0, SHAPE_OPENAI, api_chat},
    {"POST", "/v1/completions", 0, SHAPE_OPENAI, api_text},
    {"GET", "/health", ROUTE_OPEN | ROUTE_QUICK, SHAPE_OPENAI, native_health},
    {"GET", "/ready", ROUTE_OPEN | ROUTE_QUICK, SHAPE_OPENAI, native_ready},
    {"GET", "/metrics", ROUTE_QUICK, SHAPE_OPENAI, native_metrics},
    {"GET", "/v1/models", ROUTE_QUICK, SHAPE_OPENAI, native_models},
    {"GET", "/v1/models/*", ROUTE_QUICK, SHAPE_OPENAI, native_model},
    {0},
};
/* clang-format on */
