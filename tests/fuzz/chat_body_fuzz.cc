// A chat request and what the model says to it. The input up to its first NUL byte is the body of
// POST /v1/chat/completions; behind it, two bytes each are the ids that a service without a model
// "generates". Whatever both are: the status is 200, 400 or 404, the answer is JSON (or a stream of
// it), and errors are small.

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "k3pod/api/openai_api.h"

namespace k3pod {
namespace {

constexpr int32_t kVocab = 2304;

void require(bool is_true) {
    if (!is_true) std::abort();
}

class Replayer final : public GenerationService {
  public:
    std::vector<int32_t> ids;

    Result<RequestHandle> submit(GenerationRequest request,
                                 std::shared_ptr<GenerationSink> sink) override {
        require(!request.prompt.empty() && request.max_tokens > 0);
        for (const int32_t id : request.prompt) require(id >= 0 && id < kVocab);
        require(check_sampling(request.sampling, kVocab).is_ok());
        int32_t num_tokens = 0;
        for (const int32_t id : ids) {
            SampledToken token;
            token.id = token.logprob.id = id;
            token.top.resize(static_cast<size_t>(std::max(request.sampling.num_logprobs, 0)));
            const auto& stops = request.stop_ids;
            const bool goes_on =
                sink->on_token(token) && std::find(stops.begin(), stops.end(), id) == stops.end();
            if (!goes_on || ++num_tokens == request.max_tokens) break;
        }
        sink->on_finish(
            num_tokens == request.max_tokens ? FinishReason::kLength : FinishReason::kStop,
            Status::ok());
        return RequestHandle{1};
    }
    void cancel(RequestHandle) override {}
    ServiceState state() const override { return {}; }
    int32_t vocab_size() const override { return kVocab; }
    int32_t max_model_len() const override { return 8192; }
    int64_t max_requests() const override { return 100; }
    int32_t default_max_tokens(int32_t) const override { return 64; }
};

class Collector final : public HttpReply {
  public:
    void send(HttpResponse sent) override {
        require(!is_complete);
        response = std::move(sent);
        is_complete = true;
    }
    void begin_stream(HttpResponse head) override {
        response = std::move(head);
        is_stream = true;
    }
    void write(std::string piece) override { response.body += piece; }
    void end() override { is_complete = true; }
    void on_disconnect(std::function<void()>) override {}

    HttpResponse response;
    bool is_stream = false, is_complete = false;
};

struct Endpoint {
    std::unique_ptr<Tokenizer> tokenizer =
        Tokenizer::load(K3POD_SOURCE_DIR "/models/k3-tiny", kVocab).value();
    ChatWording wording = read_chat_wording(K3POD_SOURCE_DIR "/models/k3-tiny").value();
    SteadyClock clock;
    MetricsRegistry metrics;
    Replayer service;
    std::unique_ptr<OpenAiApi> api =
        OpenAiApi::create({.model_name = "k3-tiny", .sse_keepalive = Nanoseconds(0)}, service,
                          *tokenizer, wording, clock, metrics);
};

void check_stream(std::string_view events) {
    constexpr std::string_view kData = "data: ";
    while (!events.empty()) {
        const size_t end = events.find("\n\n");
        require(end != std::string_view::npos && events.substr(0, kData.size()) == kData);
        const std::string_view data = events.substr(kData.size(), end - kData.size());
        require(data == "[DONE]" || nlohmann::json::accept(data));
        events.remove_prefix(end + 2);
    }
}

void check(const Collector& reply) {
    const HttpResponse& response = reply.response;
    require(reply.is_complete);
    if (reply.is_stream) return check_stream(response.body);
    require(nlohmann::json::accept(response.body));
    require(response.status == 200 || response.status == 400 || response.status == 404);
    require(response.status == 200 || response.body.size() < 16 << 10);
}

}  // namespace
}  // namespace k3pod

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static k3pod::Endpoint endpoint;
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    const size_t body_end = std::min(input.find('\0'), size);
    endpoint.service.ids.clear();
    for (size_t at = body_end + 1; at + 1 < size; at += 2) {
        endpoint.service.ids.push_back((data[at] << 8 | data[at + 1]) % k3pod::kVocab);
    }
    k3pod::HttpRequest request;
    request.method = "POST";
    request.path = "/v1/chat/completions";
    request.body = input.substr(0, body_end);
    const auto reply = std::make_shared<k3pod::Collector>();
    endpoint.api->handle(std::move(request), reply);
    k3pod::check(*reply);
    return 0;
}
