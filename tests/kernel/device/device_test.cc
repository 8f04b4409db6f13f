// The thin layer over CUDA: memory, streams, graphs, errors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "k3pod/device/cuda.h"
#include "k3pod/kernels/elementwise.h"
#include "k3pod/kernels/support.h"
#include "k3pod/state/state_store.h"

namespace k3pod {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class Device : public ::testing::Test {
  protected:
    void SetUp() override {
        if (num_cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
        stream = std::make_unique<DeviceStream>(std::move(DeviceStream::create()).value());
    }

    DeviceBuffer device_floats(const std::vector<float>& values) const {
        const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
        DeviceBuffer buffer = std::move(DeviceBuffer::create(bytes)).value();
        EXPECT_TRUE(copy_to_device(buffer.data(), values.data(), bytes, stream->get()));
        return buffer;
    }
    std::vector<float> host_floats(const DeviceBuffer& buffer) const {
        std::vector<float> values(static_cast<size_t>(buffer.size_bytes()) / sizeof(float));
        EXPECT_TRUE(copy_to_host(values.data(), buffer.data(), buffer.size_bytes(), stream->get()));
        EXPECT_TRUE(stream->synchronize());
        return values;
    }

    std::unique_ptr<DeviceStream> stream;
};

TEST_F(Device, this_program_has_code_for_it) {
    const Status status = kernels::check_gpu_supported(0);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
}

TEST_F(Device, a_device_that_is_not_there_is_named_with_their_number) {
    const Status status = cuda_properties(99).status();
    EXPECT_EQ(status.code(), Code::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr("no CUDA device 99"));
}

TEST_F(Device, bytes_come_back_as_they_were_sent) {
    const DeviceBuffer buffer = device_floats({1, 2, 3});
    EXPECT_EQ(host_floats(buffer), (std::vector<float>{1, 2, 3}));
    ASSERT_TRUE(fill_device(buffer.data(), 0, 8, stream->get()));
    EXPECT_EQ(host_floats(buffer), (std::vector<float>{0, 0, 3}));
}

TEST_F(Device, too_large_a_buffer_is_refused_with_sizes_and_leaves_no_error_behind) {
    const Status status = DeviceBuffer::create(int64_t{1} << 50).status();
    EXPECT_EQ(status.code(), Code::kResourceExhausted);
    EXPECT_THAT(status.message(), HasSubstr("1048576.00 GiB more are needed"));
    EXPECT_TRUE(DeviceBuffer::create(1024));
}

TEST_F(Device, pinned_memory_begins_with_zeros) {
    const PinnedBuffer buffer = std::move(PinnedBuffer::create(4096)).value();
    EXPECT_THAT(std::span(buffer.as<uint8_t>(), 4096), Each(0));
}

TEST_F(Device, a_graph_runs_what_was_recorded_as_often_as_it_is_launched) {
    const DeviceBuffer x = device_floats({1, 2});
    const DeviceBuffer y = device_floats({10, 20});
    const auto graph = DeviceGraph::capture(stream->get(), [&](CudaStream s) {
        return kernels::add(x.as<float>(), y.as<float>(), 2, s);
    });
    ASSERT_TRUE(graph) << graph.status().to_string();
    EXPECT_EQ(host_floats(y), (std::vector<float>{10, 20}));  // recorded, not run
    ASSERT_TRUE(graph->launch(stream->get()));
    ASSERT_TRUE(graph->launch(stream->get()));
    EXPECT_EQ(host_floats(y), (std::vector<float>{12, 24}));
}

TEST_F(Device, an_error_while_recording_comes_back_and_the_stream_lives_on) {
    const auto graph = DeviceGraph::capture(
        stream->get(), [](CudaStream) { return invalid_argument("rows is 0"); });
    EXPECT_EQ(graph.status().message(), "rows is 0");
    EXPECT_EQ(host_floats(device_floats({7})), std::vector<float>{7});
}

TEST_F(Device, events_in_a_graph_keep_the_time_between_them) {
    const std::vector<float> zeros(1 << 20, 0);
    const DeviceBuffer x = device_floats(zeros), y = device_floats(zeros);
    const DeviceEvent begin = std::move(DeviceEvent::create()).value();
    const DeviceEvent end = std::move(DeviceEvent::create()).value();
    const auto graph = DeviceGraph::capture(stream->get(), [&](CudaStream s) {
        K3POD_TRY(begin.record(s));
        K3POD_TRY(kernels::add(x.as<float>(), y.as<float>(), std::ssize(zeros), s));
        return end.record(s);
    });
    ASSERT_TRUE(graph) << graph.status().to_string();
    ASSERT_TRUE(graph->launch(stream->get()));
    ASSERT_TRUE(stream->synchronize());
    const Result<double> us = end.microseconds_since(begin);
    ASSERT_TRUE(us) << us.status().to_string();
    EXPECT_GT(*us, 0);
    EXPECT_LT(*us, 1e6);
}

TEST_F(Device, state_memory_is_zero_when_a_sequence_gets_it) {
    const StateShape shape{.num_kda_layers = 2,
                           .kda_heads = 1,
                           .kda_head_dim = 16,
                           .conv_kernel = 4,
                           .num_mla_layers = 1,
                           .mla_cache_width = 8,
                           .num_slots = 1,
                           .num_pages = 2};
    StateStore store(shape, std::move(make_cuda_state_memory(shape)).value());
    const StatePoolBytes bytes = StateStore::pool_bytes(shape);
    ASSERT_TRUE(fill_device(store.pools().recurrent, 0x7f, bytes.recurrent, stream->get()));
    ASSERT_TRUE(fill_device(store.pools().pages, 0x7f, bytes.pages, stream->get()));
    ASSERT_TRUE(stream->synchronize());

    auto state = store.acquire(1);
    ASSERT_TRUE(state) << state.status().to_string();
    std::vector<uint8_t> recurrent(static_cast<size_t>(bytes.recurrent));
    std::vector<uint8_t> pages(static_cast<size_t>(bytes.pages));
    ASSERT_TRUE(copy_to_host(recurrent.data(), store.pools().recurrent, bytes.recurrent));
    ASSERT_TRUE(copy_to_host(pages.data(), store.pools().pages, bytes.pages));
    EXPECT_THAT(recurrent, Each(0));
    // One page of the two was handed out.
    const auto page = state->pages[0] == 0 ? std::span(pages).first(pages.size() / 2)
                                           : std::span(pages).subspan(pages.size() / 2);
    EXPECT_THAT(page, Each(0));
    store.release(std::move(*state));
}

}  // namespace
}  // namespace k3pod
