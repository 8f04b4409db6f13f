#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <exception>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "api/http/connection.h"
#include "k3pod/api/http_server.h"
#include "k3pod/base/listen_error.h"
#include "k3pod/base/log.h"

namespace k3pod {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Refused connections hold a socket while they are told why; there is a limit to that, too.
constexpr size_t kMaxRefusals = 64;
// Accepting fails at once and again when the process is out of descriptors.
constexpr Nanoseconds kAcceptRetry = std::chrono::milliseconds(100);

struct HostPort {
    std::string host, port;
};

Result<HostPort> split_address(const std::string& listen) {
    const size_t colon = listen.rfind(':');
    std::string host = listen.substr(0, colon == std::string::npos ? 0 : colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
        host = host.substr(1, host.size() - 2);
    }
    const std::string port = colon == std::string::npos ? "" : listen.substr(colon + 1);
    const bool is_number = !port.empty() && port.size() <= 5 &&
                           port.find_first_not_of("0123456789") == std::string::npos;
    if (host.empty() || !is_number || std::stoi(port) > 65535) {
        return invalid_argument(fmt::format(
            "cannot listen on '{}': an address is host:port, such as 127.0.0.1:8000", listen));
    }
    return HostPort{host, port};
}

class Server final : public HttpServer {
  public:
    Server(const HttpServerOptions& options, HttpHandler handler)
        : handler_(std::move(handler)),
          workers_(static_cast<size_t>(options.num_workers)),
          probes_(1),
          acceptor_(io_),
          timer_(io_) {
        host_.options = options;
        host_.dispatch = [this](HttpRequest request, std::shared_ptr<ReplyBox> box) {
            post_to_workers(std::move(request), std::move(box));
        };
        host_.on_closed = [this](const std::shared_ptr<Connection>& connection) {
            connections_.erase(connection);
            if (is_stopping_ && connections_.empty()) timer_.cancel();
        };
    }

    ~Server() override {
        if (io_thread_.joinable()) {
            asio::post(io_, [this] { stop(); });
            io_thread_.join();
        }
        for (asio::thread_pool* pool : {&workers_, &probes_}) pool->stop();
        for (asio::thread_pool* pool : {&workers_, &probes_}) pool->join();
    }

    Status listen() {
        K3POD_ASSIGN(const HostPort address, split_address(host_.options.listen));
        error_code error;
        const auto found =
            tcp::resolver(io_).resolve(address.host, address.port, tcp::resolver::passive, error);
        if (error) return no_such_host(host_.options.listen, error.message());
        bind(*found.begin(), error);
        if (error) return cannot_listen(host_.options.listen, error.value());
        port_ = acceptor_.local_endpoint().port();
        accept();
        io_thread_ = std::thread([this] { io_.run(); });
        return Status::ok();
    }

    int port() const override { return port_; }

  private:
    void bind(const tcp::endpoint& endpoint, error_code& error) {
        acceptor_.open(endpoint.protocol(), error);
        // Without it a restart would wait for the old connections to leave TIME_WAIT.
        if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
        if (!error) acceptor_.bind(endpoint, error);
        if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    }

    // ---- I/O thread ----

    void accept() {
        acceptor_.async_accept([this](error_code error, tcp::socket socket) {
            if (is_stopping_) return;
            if (error) return retry_accept(error);
            accept_failed_ = false;
            admit(std::move(socket));
            accept();
        });
    }

    void admit(tcp::socket socket) {
        const auto limit = static_cast<size_t>(host_.options.max_connections);
        if (connections_.size() >= limit + kMaxRefusals) return;
        const auto connection = std::make_shared<Connection>(std::move(socket), host_);
        connections_.insert(connection);
        if (connections_.size() <= limit) return connection->start();
        connection->refuse({.status = 503,
                            .message = fmt::format(
                                "all {} connections of this server are in use; try later", limit)});
    }

    void retry_accept(error_code error) {
        if (!std::exchange(accept_failed_, true)) {
            log::warning(
                fmt::format("cannot accept connections: {}; trying again", error.message()));
        }
        timer_.expires_after(kAcceptRetry);
        timer_.async_wait([this](error_code cancelled) {
            if (!cancelled && !is_stopping_) accept();
        });
    }

    void stop() {
        is_stopping_ = true;
        error_code ignored;
        acceptor_.close(ignored);
        for (const auto& connection : all_connections()) connection->drain();
        if (connections_.empty()) {
            timer_.cancel();
            return;
        }
        timer_.expires_after(host_.options.close_grace);
        timer_.async_wait([this](error_code) {
            for (const auto& connection : all_connections()) connection->close();
        });
    }

    // A copy, because closing one changes the set.
    std::vector<std::shared_ptr<Connection>> all_connections() const {
        return {connections_.begin(), connections_.end()};
    }

    void post_to_workers(HttpRequest request, std::shared_ptr<ReplyBox> box) {
        asio::thread_pool& pool = request.method == "POST" ? workers_ : probes_;
        asio::post(pool, [this, request = std::move(request),
                          reply = make_reply(std::move(box))]() mutable {
            const std::string what = request.method + " " + request.path.substr(0, 64);
            try {
                handler_(std::move(request), std::move(reply));
            } catch (const std::exception& error) {
                log::error(fmt::format("the handler of {} failed: {}", what, error.what()));
            }
        });
    }

    const HttpHandler handler_;
    Connection::Host host_;
    asio::thread_pool workers_, probes_;
    asio::io_context io_{1};
    tcp::acceptor acceptor_;
    asio::steady_timer timer_;  // accepting again; the grace of the end
    // Shared because the operations under way of a connection hold it as well.
    std::unordered_set<std::shared_ptr<Connection>> connections_;
    bool accept_failed_ = false;
    bool is_stopping_ = false;
    int port_ = 0;
    std::thread io_thread_;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpServerOptions& options,
                                                      HttpHandler handler) {
    auto server = std::make_unique<Server>(options, std::move(handler));
    K3POD_TRY(server->listen());
    return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace k3pod
