/* api_audio.h: OpenAI's audio routes, which another server of the owner answers (--stt-url, --tts-url).
 *
 * Bodies are passed on unread: the other server knows its models and formats. Each handler blocks its worker until the
 * other server has answered, at most 120 s; two requests run at a time, and more get status 429. */
#ifndef CHIMERE_SERVE_API_AUDIO_H
#define CHIMERE_SERVE_API_AUDIO_H

struct http_request;

void api_audio_speech(struct http_request *r);         /* POST /v1/audio/speech */
void api_audio_transcriptions(struct http_request *r); /* POST /v1/audio/transcriptions */
/* GET /chimere/v1/audio: the hosts that a recording or a text would be sent to, or null. */
void api_audio(struct http_request *r);

#endif
