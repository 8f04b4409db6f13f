// `k3pod ask`: one question to a running endpoint, the answer streamed to stdout.

#include <fmt/format.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "commands.h"
#include "k3pod/base/text.h"

namespace k3pod {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Json = nlohmann::json;
using boost::system::error_code;

struct Endpoint {
    std::string host, port;
};

Result<Endpoint> parse_url(std::string_view url) {
    const auto refuse = [&] {
        return invalid_argument(fmt::format(
            "--url {} is not of the form http://host:port or http://host:port/v1", url));
    };
    constexpr std::string_view kScheme = "http://";
    if (!url.starts_with(kScheme)) return refuse();
    std::string_view rest = url.substr(kScheme.size());
    for (const std::string_view tail : {"/", "/v1"}) {
        if (rest.ends_with(tail)) rest.remove_suffix(tail.size());
    }
    const size_t colon = rest.rfind(':');
    if (colon == std::string_view::npos) return refuse();
    std::string_view host = rest.substr(0, colon);
    const std::string_view port = rest.substr(colon + 1);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    uint16_t number = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    if (error != std::errc() || end != port.data() + port.size() || host.empty() ||
        host.find_first_of("/?@# \r\n") != std::string_view::npos) {
        return refuse();
    }
    return Endpoint{std::string(host), std::string(port)};
}

std::string request_body(const AskOptions& options) {
    const Json body = {{"messages", {{{"role", "user"}, {"content", options.question}}}},
                       {"temperature", 0},
                       {"stream", true},
                       {"chat_template_kwargs", {{"thinking", options.thinking}}}};
    // Bytes of the command line that are not UTF-8 become U+FFFD here.
    return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A terminal would obey the control characters that a model writes; a file takes them as they are.
Status print(std::FILE* to, std::string_view text) {
    std::string escaped;
    if (isatty(fileno(to)) == 1) text = escaped = escape_controls(text, "\n\t");
    if (std::fwrite(text.data(), 1, text.size(), to) == text.size() && std::fflush(to) == 0) {
        return Status::ok();
    }
    return data_loss(fmt::format("cannot write the answer: {}", std::strerror(errno)));
}

// Prints what one event of the stream brings; an error inside it is a Status.
class AnswerPrinter {
  public:
    explicit AnswerPrinter(bool show_thinking) : show_thinking_(show_thinking) {}

    Status on_event(std::string_view data) {
        if (data == "[DONE]") {
            is_done_ = true;
            return Status::ok();
        }
        const Json event = Json::parse(data, nullptr, false);
        if (!event.is_object())
            return internal_error("the endpoint sent an event that is not JSON");
        if (event.contains("error")) return unavailable(error_text(event));
        static const Json::json_pointer kDelta("/choices/0/delta");
        if (!event.contains(kDelta)) return Status::ok();  // usage, for one
        const Json& delta = event.at(kDelta);
        if (show_thinking_) K3POD_TRY(show_thinking(text_at(delta, "reasoning_content")));
        const std::string content = text_at(delta, "content");
        if (!content.empty()) K3POD_TRY(end_thinking());
        return print(stdout, content);
    }
    bool is_done() const { return is_done_; }

    static std::string error_text(const Json& body) {
        if (!body.is_object() || !body.contains("error")) return "no reason given";
        const std::string text = text_at(body["error"], "message");
        return text.empty() ? "no reason given" : text;
    }

  private:
    // Whatever an endpoint sends: a missing field, null or another type is no text.
    static std::string text_at(const Json& object, const char* key) {
        if (!object.is_object() || !object.contains(key) || !object[key].is_string()) return "";
        return object[key].get<std::string>();
    }

    Status show_thinking(const std::string& text) {
        if (!text.empty()) is_thinking_shown_ = true;
        return print(stderr, text);
    }
    // The answer begins on a line of its own.
    Status end_thinking() {
        if (!std::exchange(is_thinking_shown_, false)) return Status::ok();
        return print(stderr, "\n");
    }

    bool show_thinking_;
    bool is_thinking_shown_ = false;
    bool is_done_ = false;
};

// Cuts the body into "data: ..." lines as it arrives.
class EventLines {
  public:
    template <class OnData>
    Status push(std::string_view piece, OnData on_data) {
        constexpr size_t kLongestLine = 64 << 20;
        size_t searched = held_.size();
        held_.append(piece);
        if (held_.size() > kLongestLine) {
            return data_loss("the endpoint sent a line of over 64 MiB; is it a k3pod station?");
        }
        for (size_t end; (end = held_.find('\n', searched)) != std::string::npos; searched = 0) {
            std::string line = held_.substr(0, end);
            held_.erase(0, end + 1);
            if (!line.empty() && line.back() == '\r') line.pop_back();
            constexpr std::string_view kData = "data: ";
            if (line.starts_with(kData))
                K3POD_TRY(on_data(std::string_view(line).substr(kData.size())));
        }
        return Status::ok();
    }

  private:
    std::string held_;
};

class AskClient {
  public:
    AskClient(const AskOptions& options, Endpoint endpoint)
        : options_(options),
          endpoint_(std::move(endpoint)),
          stream_(io_),
          printer_(options.show_thinking) {}

    Status run() {
        K3POD_TRY(connect());
        K3POD_TRY(send());
        http::response_parser<http::buffer_body> parser;
        // Not boost::none: Boost 1.74 compares a declared length with it and refuses every one.
        parser.body_limit(std::numeric_limits<uint64_t>::max());
        const error_code error = within_timeout(
            [&](auto done) { http::async_read_header(stream_, buffer_, parser, done); });
        if (error) return broken(error);
        return parser.get().result() == http::status::ok ? stream(parser) : refused(parser);
    }

  private:
    // Starts one operation and runs it to its end, or to the end of the timeout.
    template <class Start>
    error_code within_timeout(Start start) {
        error_code result;
        stream_.expires_after(
            std::chrono::milliseconds(static_cast<int64_t>(options_.timeout_s * 1e3)));
        start([&result](error_code error, auto&&...) { result = error; });
        io_.restart();
        io_.run();
        return result;
    }

    Status broken(const error_code& error) const {
        if (error == http::error::bad_version) {
            return unavailable(fmt::format(
                "{}:{} does not speak HTTP; give the address of [station] listen with --url",
                endpoint_.host, endpoint_.port));
        }
        return unavailable(fmt::format("{}:{}: {}", endpoint_.host, endpoint_.port,
                                       error == beast::error::timeout
                                           ? fmt::format("silent for {} s", options_.timeout_s)
                                           : error.message()));
    }

    Status connect() {
        error_code error;
        asio::ip::tcp::resolver resolver(io_);
        const auto addresses = resolver.resolve(endpoint_.host, endpoint_.port, error);
        if (!error) {
            error = within_timeout([&](auto done) { stream_.async_connect(addresses, done); });
        }
        if (!error) return Status::ok();
        return unavailable(fmt::format("cannot reach {}:{}: {}; is the station running?",
                                       endpoint_.host, endpoint_.port, error.message()));
    }

    Status send() {
        http::request<http::string_body> request{http::verb::post, "/v1/chat/completions", 11};
        request.set(http::field::host, endpoint_.host + ":" + endpoint_.port);
        request.set(http::field::content_type, "application/json");
        request.body() = request_body(options_);
        request.prepare_payload();
        const error_code error =
            within_timeout([&](auto done) { http::async_write(stream_, request, done); });
        return error ? broken(error) : Status::ok();
    }

    // Reads the body piece by piece until it ends.
    template <class Parser, class OnPiece>
    Status read_body(Parser& parser, OnPiece on_piece) {
        char piece[16384];
        while (!parser.is_done()) {
            parser.get().body().data = piece;
            parser.get().body().size = sizeof(piece);
            error_code error = within_timeout(
                [&](auto done) { http::async_read_some(stream_, buffer_, parser, done); });
            if (error == http::error::need_buffer) error = {};
            if (error) return broken(error);
            K3POD_TRY(on_piece(std::string_view(piece, sizeof(piece) - parser.get().body().size)));
        }
        return Status::ok();
    }

    template <class Parser>
    Status stream(Parser& parser) {
        EventLines lines;
        K3POD_TRY(read_body(parser, [&](std::string_view piece) {
            return lines.push(piece,
                              [&](std::string_view data) { return printer_.on_event(data); });
        }));
        K3POD_TRY(print(stdout, "\n"));
        return printer_.is_done() ? Status::ok() : unavailable("the answer ended early");
    }

    template <class Parser>
    Status refused(Parser& parser) {
        constexpr size_t kLimit = 64 << 10;
        std::string body;
        K3POD_TRY(read_body(parser, [&](std::string_view piece) {
            if (body.size() < kLimit) body.append(piece);
            return Status::ok();
        }));
        return unavailable(
            fmt::format("the endpoint answered {}: {}", parser.get().result_int(),
                        AnswerPrinter::error_text(Json::parse(body, nullptr, false))));
    }

    const AskOptions& options_;
    Endpoint endpoint_;
    asio::io_context io_;
    beast::tcp_stream stream_;
    beast::flat_buffer buffer_;
    AnswerPrinter printer_;
};

}  // namespace

Status run_ask(const AskOptions& options) {
    K3POD_ASSIGN(Endpoint endpoint, parse_url(options.url));
    AskClient client(options, std::move(endpoint));
    return client.run();
}

}  // namespace k3pod
