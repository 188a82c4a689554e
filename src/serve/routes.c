/* routes.c: one row per route. */
#include "serve/api/api.h"
#include "serve/api/api_audio.h"
#include "serve/api/api_llama.h"
#include "serve/api/api_odo.h"
#include "serve/api/api_ollama.h"
#include "serve/resource/conversations.h"
#include "serve/resource/documents.h"
#include "serve/resource/engram.h"
#include "serve/health.h"
#include "serve/resource/insight.h"
#include "serve/http/keys.h"
#include "serve/resource/models_disk.h"
#include "serve/resource/models_ramp.h"
#include "serve/api/native.h"
#include "serve/openapi.h"
#include "serve/resource/personas.h"
#include "serve/resource/pipelines.h"
#include "serve/programs.h"
#include "serve/api/resume.h"
#include "serve/slots.h"
#include "serve/studio.h"

/* clang-format off */
const struct route routes[] = {
    {"POST", "/v1/chat/completions", 0, SHAPE_OPENAI, api_chat},
    {"POST", "/v1/completions", 0, SHAPE_OPENAI, api_text},
    {"POST", "/v1/responses", 0, SHAPE_OPENAI, api_responses},
    {"POST", "/v1/messages", 0, SHAPE_ANTHROPIC, api_messages},
    {"POST", "/v1/messages/count_tokens", 0, SHAPE_ANTHROPIC, api_count_tokens},
    {"POST", "/v1/embeddings", 0, SHAPE_OPENAI, api_embeddings},
    {"POST", "/v1/rerank", 0, SHAPE_OPENAI, api_rerank},
    {"POST", "/v1/audio/speech", 0, SHAPE_OPENAI, api_audio_speech},
    {"POST", "/v1/audio/transcriptions", 0, SHAPE_OPENAI, api_audio_transcriptions},
    {"POST", "/mcp", 0, SHAPE_OPENAI, api_mcp},
    {"DELETE", "/mcp", 0, SHAPE_OPENAI, api_mcp_end},
    {"GET", "/v1/memory", 0, SHAPE_OPENAI, api_memory},
    {"POST", "/v1/memory", 0, SHAPE_OPENAI, api_memory_add},
    {"POST", "/v1/memory/*", 0, SHAPE_OPENAI, api_memory_change},
    {"DELETE", "/v1/memory/*", 0, SHAPE_OPENAI, api_memory_remove},
    {"GET", "/v1/conversations", 0, SHAPE_OPENAI, conversations_list},
    {"POST", "/v1/conversations", 0, SHAPE_OPENAI, conversations_create},
    {"GET", "/v1/conversations/*/items", 0, SHAPE_OPENAI, conversations_items_list},
    {"POST", "/v1/conversations/*/items", 0, SHAPE_OPENAI, conversations_items_create},
    {"GET", "/v1/conversations/*/items/*", 0, SHAPE_OPENAI, conversations_items_find},
    {"POST", "/v1/conversations/*/items/*", 0, SHAPE_OPENAI, conversations_items_change},
    {"DELETE", "/v1/conversations/*/items/*", 0, SHAPE_OPENAI, conversations_items_remove},
    {"GET", "/v1/conversations/*", 0, SHAPE_OPENAI, conversations_find},
    {"POST", "/v1/conversations/*", 0, SHAPE_OPENAI, conversations_change},
    {"DELETE", "/v1/conversations/*", 0, SHAPE_OPENAI, conversations_remove},
    {"GET", "/v1/skills", ROUTE_QUICK, SHAPE_OPENAI, api_skills},
    {"GET", "/v1/confirm", ROUTE_QUICK, SHAPE_OPENAI, api_confirm_list},
    {"POST", "/v1/confirm", 0, SHAPE_OPENAI, api_confirm},
    {"POST", "/v1/feedback", 0, SHAPE_OPENAI, native_feedback},
    {"POST", "/completion", 0, SHAPE_OPENAI, api_completion},
    {"POST", "/infill", 0, SHAPE_OPENAI, api_infill},
    {"POST", "/reranking", 0, SHAPE_OPENAI, api_rerank},
    {"GET", "/lora-adapters", ROUTE_QUICK, SHAPE_OPENAI, api_adapters},
    {"GET", "/v1/responses/*", 0, SHAPE_OPENAI, api_response_get},
    {"DELETE", "/v1/responses/*", 0, SHAPE_OPENAI, api_response_delete},
    {"POST", "/v1/responses/input_tokens", 0, SHAPE_OPENAI, api_count_input},
    {"POST", "/v1/chat/completions/input_tokens", 0, SHAPE_OPENAI, api_count_chat},
    {"GET", "/api/version", ROUTE_OPEN | ROUTE_QUICK, SHAPE_OLLAMA, api_ollama_version},
    {"GET", "/api/tags", ROUTE_QUICK, SHAPE_OLLAMA, api_ollama_tags},
    {"GET", "/api/ps", ROUTE_QUICK, SHAPE_OLLAMA, api_ollama_ps},
    {"POST", "/api/show", 0, SHAPE_OLLAMA, api_ollama_show},
    {"POST", "/api/chat", 0, SHAPE_OLLAMA, api_ollama_chat},
    {"POST", "/api/generate", 0, SHAPE_OLLAMA, api_ollama_generate},
    {"POST", "/api/embed", 0, SHAPE_OLLAMA, api_ollama_embed},
    {"POST", "/api/embeddings", 0, SHAPE_OLLAMA, api_ollama_embed},
    {"POST", "/api/pull", 0, SHAPE_OLLAMA, api_ollama_pull},
    {"DELETE", "/api/delete", 0, SHAPE_OLLAMA, api_ollama_delete},
    {"POST", "/tokenize", 0, SHAPE_OPENAI, native_tokenize},
    {"POST", "/detokenize", 0, SHAPE_OPENAI, native_detokenize},
    {"POST", "/apply-template", 0, SHAPE_OPENAI, native_template},
    {"POST", "/models/load", ROUTE_ADMIN, SHAPE_OPENAI, native_load},
    {"POST", "/models/unload", ROUTE_ADMIN, SHAPE_OPENAI, native_unload},
    {"GET", "/props", ROUTE_QUICK, SHAPE_OPENAI, native_props},
    {"GET", "/slots", ROUTE_QUICK | ROUTE_ADMIN, SHAPE_OPENAI, native_slots},
    {"POST", "/slots/*", 0, SHAPE_OPENAI, slots_post},
    {"GET", "/chimere/v1/audio", ROUTE_QUICK, SHAPE_OPENAI, api_audio},
    {"GET", "/chimere/v1/recommend", 0, SHAPE_OPENAI, api_recommend},
    {"GET", "/chimere/v1/models", ROUTE_ADMIN, SHAPE_OPENAI, models_disk_list},
    {"POST", "/chimere/v1/models/pull", ROUTE_ADMIN, SHAPE_OPENAI, models_disk_pull},
    {"GET", "/chimere/v1/ramp", ROUTE_ADMIN, SHAPE_OPENAI, models_ramp_cards},
    {"POST", "/chimere/v1/ramp", ROUTE_ADMIN, SHAPE_OPENAI, models_ramp_make},
    {"GET", "/chimere/v1/documents", 0, SHAPE_OPENAI, documents_list},
    {"POST", "/chimere/v1/documents", 0, SHAPE_OPENAI, documents_put},
    {"DELETE", "/chimere/v1/documents", 0, SHAPE_OPENAI, documents_remove},
    {"GET", "/chimere/v1/documents/search", 0, SHAPE_OPENAI, documents_search},
    {"POST", "/chimere/v1/extract", 0, SHAPE_OPENAI, documents_extract},
    {"POST", "/chimere/v1/run", 0, SHAPE_OPENAI, programs_run},
    {"GET", "/chimere/v1/answers/*", 0, SHAPE_OPENAI, resume_follow},
    {"DELETE", "/chimere/v1/answers/*", 0, SHAPE_OPENAI, resume_stop},
    {"GET", "/chimere/v1/requests", ROUTE_ADMIN, SHAPE_OPENAI, insight_requests},
    {"GET", "/chimere/v1/decisions", ROUTE_ADMIN, SHAPE_OPENAI, insight_decisions},
    {"GET", "/chimere/v1/quality", ROUTE_ADMIN, SHAPE_OPENAI, insight_quality},
    {"GET", "/chimere/v1/nights", ROUTE_ADMIN, SHAPE_OPENAI, insight_nights},
    {"POST", "/chimere/v1/nights", ROUTE_ADMIN, SHAPE_OPENAI, insight_roll_back},
    {"GET", "/chimere/v1/nights/*", ROUTE_ADMIN, SHAPE_OPENAI, insight_night_page},
    {"GET", "/chimere/v1/keys", ROUTE_ADMIN, SHAPE_OPENAI, keys_list},
    {"POST", "/chimere/v1/keys", ROUTE_ADMIN, SHAPE_OPENAI, keys_create},
    {"POST", "/chimere/v1/keys/*", ROUTE_ADMIN, SHAPE_OPENAI, keys_change},
    {"DELETE", "/chimere/v1/keys/*", ROUTE_ADMIN, SHAPE_OPENAI, keys_revoke},
    {"GET", "/chimere/v1/personas", 0, SHAPE_OPENAI, personas_list},
    {"POST", "/chimere/v1/personas", 0, SHAPE_OPENAI, personas_create},
    {"POST", "/chimere/v1/personas/*", 0, SHAPE_OPENAI, personas_change},
    {"DELETE", "/chimere/v1/personas/*", 0, SHAPE_OPENAI, personas_remove},
    {"GET", "/chimere/v1/pipelines", ROUTE_ADMIN, SHAPE_OPENAI, pipelines_list},
    {"POST", "/chimere/v1/pipelines/check", ROUTE_ADMIN, SHAPE_OPENAI, pipelines_check},
    {"POST", "/chimere/v1/pipelines/*", ROUTE_ADMIN, SHAPE_OPENAI, pipelines_put},
    {"DELETE", "/chimere/v1/pipelines/*", ROUTE_ADMIN, SHAPE_OPENAI, pipelines_remove},
    {"POST", "/chimere/v1/explain", ROUTE_ADMIN, SHAPE_OPENAI, pipelines_explain},
    {"GET", "/chimere/v1/engram", ROUTE_ADMIN, SHAPE_OPENAI, engram_list},
    {"POST", "/chimere/v1/engram", ROUTE_ADMIN, SHAPE_OPENAI, engram_make},
    {"POST", "/chimere/v1/engram/look", ROUTE_ADMIN, SHAPE_OPENAI, engram_look},
    {"DELETE", "/chimere/v1/engram/*", ROUTE_ADMIN, SHAPE_OPENAI, engram_remove},
    {"GET", "/v1/status", ROUTE_QUICK | ROUTE_ADMIN, SHAPE_OPENAI, native_status},
    {"GET", "/openapi.json", ROUTE_OPEN | ROUTE_QUICK, SHAPE_OPENAI, openapi_json},
    {"GET", "/", ROUTE_OPEN | ROUTE_QUICK, SHAPE_OPENAI, studio_home},
    {"GET", "/studio/*", ROUTE_OPEN | ROUTE_QUICK, SHAPE_OPENAI, studio_asset},
    {"GET", "/v1", ROUTE_OPEN | ROUTE_QUICK, SHAPE_OPENAI, health_ok},
    {"GET", "/health", ROUTE_OPEN | ROUTE_QUICK, SHAPE_OPENAI, health_ok},
    {"GET", "/health/live", ROUTE_OPEN | ROUTE_QUICK, SHAPE_OPENAI, health_live},
    {"GET", "/health/ready", ROUTE_OPEN | ROUTE_QUICK, SHAPE_OPENAI, health_ready},
    {"POST", "/drain", ROUTE_QUICK | ROUTE_ADMIN, SHAPE_OPENAI, health_drain},
    {"DELETE", "/drain", ROUTE_QUICK | ROUTE_ADMIN, SHAPE_OPENAI, health_undrain},
    {"GET", "/ready", ROUTE_OPEN | ROUTE_QUICK, SHAPE_OPENAI, health_ready},
    {"GET", "/metrics", ROUTE_QUICK | ROUTE_ADMIN | ROUTE_METRICS, SHAPE_OPENAI, native_metrics},
    {"GET", "/v1/models", ROUTE_QUICK, SHAPE_OPENAI, native_models},
    {"GET", "/v1/models/*", ROUTE_QUICK, SHAPE_OPENAI, native_model},
    {0},
};
/* clang-format on */
