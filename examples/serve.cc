// serve.cc: one model behind the OpenAI and Anthropic HTTP APIs and in use by this program, both at once.
//
//     c++ serve.cc $(pkg-config --cflags --libs chimere) -o serve && ./serve MODEL.gguf
#include <chimere.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

struct closer {
    void operator()(chimere_model *m) const { chimere_model_close(m); }
    void operator()(chimere_session *s) const { chimere_session_free(s); }
    void operator()(chimere_server *s) const { chimere_server_close(s); }
};
template <class T> using handle = std::unique_ptr<T, closer>;

void check(int rc, const chimere_error &e) {
    if (rc) throw std::runtime_error(std::string(e.text) + " " + e.hint);
}

handle<chimere_model> open_model(const char *path) {
    chimere_error e;
    chimere_model_options o;
    chimere_model_options_init(&o);
    o.path = path;
    chimere_model *m;
    check(chimere_model_open(&m, &o, &e), e);
    return handle<chimere_model>(m);
}

handle<chimere_server> open_server(chimere_model *m) {
    chimere_error e;
    chimere_server *s;
    check(chimere_server_open(&s, &m, 1, nullptr, &e), e);
    return handle<chimere_server>(s);
}

std::string complete(chimere_model *m, const char *text) {
    chimere_error e;
    chimere_session *session;
    check(chimere_session_new(&session, m, &e), e);
    handle<chimere_session> s(session);
    chimere_options o;
    chimere_options_init(&o);
    o.max_tokens = 8;
    o.temperature = 0;
    chimere_answer a;
    check(chimere_complete(s.get(), text, &o, &a, &e), e);
    std::string out = a.text;
    chimere_answer_free(&a);
    return out;
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s MODEL.gguf\n", argv[0]);
        return 2;
    }
    try {
        handle<chimere_model> model = open_model(argv[1]);
        std::printf("One, two, three,%s\n", complete(model.get(), "One, two, three,").c_str());
        handle<chimere_server> server = open_server(model.get());
        std::printf("http://127.0.0.1:%d/v1 until Enter is pressed\n",
                    chimere_server_port(server.get()));
        std::fflush(stdout);
        std::getchar();
    } catch (const std::exception &x) {
        std::fprintf(stderr, "%s\n", x.what());
        return 1;
    }
}
