#include "k3pod/api/openai_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <utility>

#include "api/error_body.h"
#include "api/openai/answer_json.h"
#include "api/openai/api_context.h"
#include "api/openai/generation.h"
#include "api/openai/health.h"
#include "api/openai/http_metrics.h"
#include "api/openai/stream_keeper.h"
#include "api/openai/token_handlers.h"

namespace k3pod {
namespace {

using Reply = std::shared_ptr<HttpReply>;

constexpr std::string_view kModels = "/v1/models";

int64_t longest_token_bytes(const Tokenizer& tokenizer) {
    size_t longest = 1;
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
        if (!tokenizer.is_control(id)) longest = std::max(longest, tokenizer.bytes(id).size());
    }
    return static_cast<int64_t>(longest);
}

int64_t seconds_since_epoch() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

// "application/json; charset=utf-8" is JSON, and so is no statement at all.
bool is_json(std::string_view content_type) {
    std::string type(content_type.substr(0, content_type.find(';')));
    type.erase(type.find_last_not_of(" \t") + 1);
    std::transform(type.begin(), type.end(), type.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return type.empty() || type == "application/json" || type.ends_with("+json");
}

class Api final : public OpenAiApi {
  public:
    Api(const ApiOptions& options, GenerationService& service, const Tokenizer& tokenizer,
        const ChatWording& wording, const Clock& clock, MetricsRegistry& metrics)
        : context_{options,
                   service,
                   tokenizer,
                   wording,
                   clock,
                   metrics,
                   seconds_since_epoch(),
                   longest_token_bytes(tokenizer)},
          keeper_(clock) {}

    void handle(HttpRequest request, Reply reply) override {
        const Route* route = find_route(request.path);
        reply = make_counting_reply(std::move(reply), context_.metrics, context_.clock,
                                    route != nullptr ? route->path : "other",
                                    method_label(request.method));
        if (request.method == "OPTIONS" && request.path == "*") return reply->send(allow_all());
        if (route == nullptr) return refuse_path(request, *reply);
        if (request.method == "OPTIONS") return reply->send(allow(*route, 204));
        const bool is_get = request.method == "GET" || request.method == "HEAD";
        if (route->is_post ? request.method != "POST" : !is_get) {
            return reply->send(allow(*route, 405));
        }
        if (route->is_post && !is_json(request.header("Content-Type"))) {
            return refuse_type(request, *reply);
        }
        (this->*route->handler)(request, std::move(reply));
    }

  private:
    struct Route {
        const char* path;
        bool is_post;
        void (Api::*handler)(const HttpRequest&, Reply);
    };

    static const Route* find_route(std::string_view path) {
        static constexpr std::array kRoutes{
            Route{"/v1/chat/completions", true, &Api::chat},
            Route{"/v1/completions", true, &Api::completion},
            Route{"/v1/models", false, &Api::models},
            Route{"/tokenize", true, &Api::tokenise},
            Route{"/detokenize", true, &Api::detokenise},
            Route{"/health", false, &Api::health},
            Route{"/ping", false, &Api::health},
            Route{"/metrics", false, &Api::expose_metrics},
            Route{"/version", false, &Api::version},
        };
        for (const Route& route : kRoutes) {
            if (path == route.path) return &route;
        }
        // /v1/models/ID: the id may hold slashes.
        const bool is_model =
            path.starts_with(kModels) && path.substr(kModels.size()).starts_with('/');
        return is_model ? &kRoutes[2] : nullptr;
    }

    static const char* method_label(std::string_view method) {
        for (const char* known : {"GET", "POST", "HEAD", "OPTIONS"}) {
            if (method == known) return known;
        }
        return "other";
    }

    // ---- refusals ----

    static void refuse_path(const HttpRequest& request, HttpReply& reply) {
        reply.send(error_response(
            {.status = 404,
             .message = fmt::format("there is nothing at {}; this server has /v1/chat/completions, "
                                    "/v1/completions, /v1/models, /v1/pod/placement, "
                                    "/v1/pod/trace, /tokenize, /detokenize, /health, /ping, "
                                    "/metrics and /version",
                                    excerpt(request.path))}));
    }

    static void refuse_type(const HttpRequest& request, HttpReply& reply) {
        reply.send(
            error_response({.status = 415,
                            .message = fmt::format("Content-Type: expected application/json, "
                                                   "found {}",
                                                   excerpt(request.header("Content-Type")))}));
    }

    static HttpResponse allow(const Route& route, int status) {
        const char* methods = route.is_post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
        HttpResponse response{.status = status};
        if (status == 405) {
            response = error_response(
                {.status = 405, .message = fmt::format("{} takes {}", route.path, methods)});
        }
        response.headers.emplace_back("Allow", methods);
        return response;
    }

    // What some route takes.
    static HttpResponse allow_all() {
        return {.status = 204, .headers = {{"Allow", "GET, HEAD, POST, OPTIONS"}}};
    }

    // ---- routes ----

    void chat(const HttpRequest& request, Reply reply) {
        if (auto stream = answer_chat(context_, request, std::move(reply))) keeper_.add(stream);
    }
    void completion(const HttpRequest& request, Reply reply) {
        if (auto stream = answer_completion(context_, request, std::move(reply)))
            keeper_.add(stream);
    }
    void tokenise(const HttpRequest& request, Reply reply) {
        reply->send(tokenize(context_, request));
    }
    void detokenise(const HttpRequest& request, Reply reply) {
        reply->send(detokenize(context_, request));
    }

    void models(const HttpRequest& request, Reply reply) {
        const OrderedJson model{{"id", context_.options.model_name},
                                {"object", "model"},
                                {"created", context_.created},
                                {"owned_by", "k3pod"},
                                {"max_model_len", context_.service.max_model_len()}};
        if (request.path == kModels) {
            const OrderedJson list{{"object", "list"}, {"data", OrderedJson::array({model})}};
            return reply->send({.body = dump(list)});
        }
        const std::string id = request.path.substr(kModels.size() + 1);
        if (id == context_.options.model_name) return reply->send({.body = dump(model)});
        reply->send(error_response(
            {.status = 404,
             .message = fmt::format("the model {} does not exist; this server has '{}'",
                                    excerpt(id), context_.options.model_name),
             .param = "model",
             .code = "model_not_found"}));
    }

    void health(const HttpRequest&, Reply reply) {
        reply->send(health_response(context_.service.state(), context_.options.stall_limit));
    }

    void expose_metrics(const HttpRequest&, Reply reply) {
        reply->send({.content_type = kMetricsContentType, .body = context_.metrics.expose()});
    }

    void version(const HttpRequest&, Reply reply) {
        reply->send({.body = dump({{"version", context_.options.build_id}})});
    }

    const ApiContext context_;
    StreamKeeper keeper_;
};

}  // namespace

std::unique_ptr<OpenAiApi> OpenAiApi::create(const ApiOptions& options, GenerationService& service,
                                             const Tokenizer& tokenizer, const ChatWording& wording,
                                             const Clock& clock, MetricsRegistry& metrics) {
    return std::make_unique<Api>(options, service, tokenizer, wording, clock, metrics);
}

}  // namespace k3pod
