// libgyre_parquet.so: Apache Arrow's Parquet reader behind the functions of plugin.h. It knows nothing else of Gyre.
#include "gyre/data/parquet/plugin.h"

#include <arrow/array.h>
#include <arrow/c/bridge.h>
#include <arrow/config.h>
#include <arrow/io/interfaces.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "gyre/data/parquet/uniform_lists.h"

namespace gyre::data::parquet {

/// Arrow's default memory, as much as the caller grants.
struct Pool : public arrow::MemoryPool {
  explicit Pool(const Memory& granted) : memory(granted) {}

  using arrow::MemoryPool::Allocate;
  using arrow::MemoryPool::Free;
  using arrow::MemoryPool::Reallocate;

  arrow::Status Allocate(std::int64_t size, std::int64_t alignment, std::uint8_t** out) override {
    ARROW_RETURN_NOT_OK(reserve(size));
    arrow::Status status = below->Allocate(size, alignment, out);
    if (status.ok()) {
      statistics.DidAllocateBytes(size);
    } else {
      release(size);
    }
    return status;
  }

  arrow::Status Reallocate(std::int64_t old_size, std::int64_t new_size, std::int64_t alignment,
                           std::uint8_t** out) override {
    if (new_size > old_size) ARROW_RETURN_NOT_OK(reserve(new_size - old_size));
    arrow::Status status = below->Reallocate(old_size, new_size, alignment, out);
    if (!status.ok()) {
      if (new_size > old_size) release(new_size - old_size);
      return status;
    }
    if (new_size < old_size) release(old_size - new_size);
    statistics.DidReallocateBytes(old_size, new_size);
    return status;
  }

  void Free(std::uint8_t* buffer, std::int64_t size, std::int64_t alignment) override {
    below->Free(buffer, size, alignment);
    statistics.DidFreeBytes(size);
    release(size);
  }

  std::int64_t bytes_allocated() const override { return statistics.bytes_allocated(); }
  std::int64_t max_memory() const override { return statistics.max_memory(); }
  std::int64_t total_bytes_allocated() const override { return statistics.total_bytes_allocated(); }
  std::int64_t num_allocations() const override { return statistics.num_allocations(); }
  std::string backend_name() const override { return below->backend_name(); }

  arrow::Status reserve(std::int64_t bytes) const {
    if (bytes < 0) return arrow::Status::Invalid("a negative size");
    if (memory.reserve(memory.context, static_cast<std::uint64_t>(bytes))) return arrow::Status::OK();
    return arrow::Status::OutOfMemory(bytes, " more bytes are not granted");
  }
  void release(std::int64_t bytes) const { memory.release(memory.context, static_cast<std::uint64_t>(bytes)); }

  Memory memory;
  arrow::MemoryPool* below = arrow::default_memory_pool();
  arrow::internal::MemoryPoolStats statistics;
};

namespace {

/// Of Source: every range that Arrow asks for, because a file said so, is compared with the file's size first.
class SourceFile : public arrow::io::RandomAccessFile {
 public:
  SourceFile(const Source& source, Pool* pool) : source_(source), pool_(pool) {}

  bool failed() const { return failed_; }

  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }
  arrow::Result<std::int64_t> Tell() const override { return position_; }
  arrow::Result<std::int64_t> GetSize() override { return static_cast<std::int64_t>(source_.size_bytes); }
  arrow::Status Seek(std::int64_t position) override {
    if (position < 0) return arrow::Status::Invalid("a place before the file's begin");
    position_ = position;
    return arrow::Status::OK();
  }
  arrow::Result<std::int64_t> Read(std::int64_t bytes, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const std::int64_t count, ReadAt(position_, bytes, out));
    position_ += count;
    return count;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(std::int64_t bytes) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(position_, bytes));
    position_ += buffer->size();
    return buffer;
  }

  using arrow::io::RandomAccessFile::ReadAt;
  arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t bytes, void* out) override {
    ARROW_RETURN_NOT_OK(check(position, bytes));
    if (!source_.read_at(source_.context, static_cast<std::uint64_t>(position), out,
                         static_cast<std::uint64_t>(bytes))) {
      failed_ = true;
      return arrow::Status::IOError("the file cannot be read");
    }
    return bytes;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(std::int64_t position, std::int64_t bytes) override {
    ARROW_RETURN_NOT_OK(check(position, bytes));
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateBuffer(bytes, pool_));
    ARROW_RETURN_NOT_OK(ReadAt(position, bytes, buffer->mutable_data()));
    return std::shared_ptr<arrow::Buffer>(std::move(buffer));
  }

 private:
  arrow::Status check(std::int64_t position, std::int64_t bytes) const {
    const auto size = static_cast<std::int64_t>(source_.size_bytes);
    if (position >= 0 && bytes >= 0 && position <= size && bytes <= size - position) return arrow::Status::OK();
    return arrow::Status::Invalid("the file says that ", bytes, " bytes begin at byte ", position,
                                  ", and it ends at byte ", size);
  }

  Source source_;
  Pool* pool_;
  std::int64_t position_ = 0;
  bool closed_ = false;
  bool failed_ = false;
};

void write(std::string_view text, Text into) {
  if (into.bytes == 0) return;
  const std::size_t count = std::min<std::size_t>(text.size(), into.bytes - 1);
  std::memcpy(into.into, text.data(), count);
  into.into[count] = '\0';
}

Outcome outcome_of(const arrow::Status& status, const SourceFile& file, Text why) {
  if (status.ok()) return Outcome::kDone;
  write(status.message(), why);
  if (file.failed()) return Outcome::kSourceFailed;
  if (status.IsOutOfMemory()) return Outcome::kNoMemory;
  return status.IsNotImplemented() ? Outcome::kUnsupported : Outcome::kCorrupt;
}

/// What `call` comes to, by its arrow::Status or by an exception.
template <typename Call>
Outcome guarded(const SourceFile& file, Text why, Call call) {
  try {
    return outcome_of(call(), file, why);
  } catch (const ::parquet::ParquetStatusException& exception) {
    return outcome_of(exception.status(), file, why);
  } catch (const std::bad_alloc&) {
    write("out of memory", why);
    return Outcome::kNoMemory;
  } catch (const std::exception& exception) {
    write(exception.what(), why);
    return file.failed() ? Outcome::kSourceFailed : Outcome::kCorrupt;
  }
}

}  // namespace

struct File {
  std::shared_ptr<SourceFile> source;
  Pool* pool = nullptr;
  std::unique_ptr<::parquet::arrow::FileReader> reader;

  const ::parquet::FileMetaData& metadata() const { return *reader->parquet_reader()->metadata(); }
};

namespace {

constexpr std::int64_t kStreamBytes = std::int64_t{1} << 20;

std::uint64_t not_negative(std::int64_t value) { return value < 0 ? 0 : static_cast<std::uint64_t>(value); }

arrow::Status open_reader(const Source& source, Pool* pool, File& file) {
  ::parquet::ReaderProperties properties(pool);
  // No structure of the footer can be larger than the file.
  const auto most =
      static_cast<std::int32_t>(std::min<std::uint64_t>(source.size_bytes, ::parquet::kDefaultThriftStringSizeLimit));
  properties.set_thrift_string_size_limit(most);
  properties.set_thrift_container_size_limit(std::min(most, ::parquet::kDefaultThriftContainerSizeLimit));
  properties.set_page_checksum_verification(true);
  // Otherwise all compressed bytes of a column are held while it is decompressed.
  properties.enable_buffered_stream();
  properties.set_buffer_size(std::min<std::int64_t>(kStreamBytes, static_cast<std::int64_t>(source.size_bytes)));
  ::parquet::ArrowReaderProperties reading(false);
  reading.set_pre_buffer(false);  // Which would read on threads of Arrow's.
  reading.set_arrow_extensions_enabled(false);
  ::parquet::arrow::FileReaderBuilder builder;
  ARROW_RETURN_NOT_OK(builder.Open(file.source, properties));
  builder.memory_pool(pool)->properties(reading);
  return builder.Build(&file.reader);
}

/// Numbers that are used before any value is read.
arrow::Status check(const File& file) {
  const ::parquet::FileMetaData& metadata = file.metadata();
  for (int group = 0; group < metadata.num_row_groups(); ++group) {
    const auto row_group = metadata.RowGroup(group);
    if (row_group->num_rows() < 0) {
      return arrow::Status::Invalid("row group ", group, " is said to have ", row_group->num_rows(), " rows");
    }
    if (row_group->num_columns() != metadata.num_columns()) {
      return arrow::Status::Invalid("row group ", group, " has ", row_group->num_columns(), " columns, and the schema ",
                                    metadata.num_columns());
    }
  }
  return arrow::Status::OK();
}

Outcome open(const Source* source, Pool* pool, File** opened, Text why) {
  *opened = nullptr;
  auto file = std::make_unique<File>();
  file->source = std::make_shared<SourceFile>(*source, pool);
  file->pool = pool;
  const Outcome outcome = guarded(*file->source, why, [&] {
    ARROW_RETURN_NOT_OK(open_reader(*source, pool, *file));
    return check(*file);
  });
  if (outcome == Outcome::kDone) *opened = file.release();
  return outcome;
}

Outcome schema(const File* file, ArrowSchema* into, Text why) {
  return guarded(*file->source, why, [&]() -> arrow::Status {
    std::shared_ptr<arrow::Schema> found;
    ARROW_RETURN_NOT_OK(file->reader->GetSchema(&found));
    return arrow::ExportSchema(*found, into);
  });
}

void hand_over(const Parts* parts, ArrowArray* part) { parts->add(parts->context, part); }

/// False: it is not such a column.
arrow::Result<bool> read_as_uniform_lists(const File& file, int row_group, int leaf, std::int64_t rows_per_part,
                                          const Parts* parts) {
  std::shared_ptr<arrow::Schema> schema;
  ARROW_RETURN_NOT_OK(file.reader->GetSchema(&schema));
  const ::parquet::SchemaDescriptor& columns = *file.metadata().schema();
  const int field = columns.group_node()->FieldIndex(*columns.GetColumnRoot(leaf));
  if (field < 0 || field >= schema->num_fields()) return false;
  const auto arrays = read_uniform_lists(*file.reader->parquet_reader(), schema->field(field)->type(), row_group, leaf,
                                         rows_per_part, file.pool);
  if (!arrays) return false;
  for (const auto& array : *arrays) {
    ArrowArray part{};
    ARROW_RETURN_NOT_OK(arrow::ExportArray(*array, &part));
    hand_over(parts, &part);
  }
  return true;
}

Outcome read(const File* file, std::uint64_t row_group, std::uint64_t leaf, std::uint64_t rows_per_part,
             const Parts* parts, Text why) {
  return guarded(*file->source, why, [&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(const bool done,
                          read_as_uniform_lists(*file, static_cast<int>(row_group), static_cast<int>(leaf),
                                                static_cast<std::int64_t>(rows_per_part), parts));
    if (done) return arrow::Status::OK();
    // What Arrow takes besides the values, several times their memory, it takes for a part and not for the row group.
    file->reader->set_batch_size(static_cast<std::int64_t>(rows_per_part));
    ARROW_ASSIGN_OR_RAISE(const auto batches,
                          file->reader->GetRecordBatchReader({static_cast<int>(row_group)}, {static_cast<int>(leaf)}));
    for (;;) {
      std::shared_ptr<arrow::RecordBatch> batch;
      ARROW_RETURN_NOT_OK(batches->ReadNext(&batch));
      if (!batch) return arrow::Status::OK();
      if (batch->num_columns() != 1) return arrow::Status::Invalid("the schema does not agree with the columns");
      ARROW_RETURN_NOT_OK(batch->column(0)->Validate());
      ArrowArray part{};
      ARROW_RETURN_NOT_OK(arrow::ExportArray(*batch->column(0), &part));
      hand_over(parts, &part);
    }
  });
}

constexpr Interface kInterface = {
    .version = kInterfaceVersion,
    .arrow_version = ARROW_VERSION_STRING,
    .make_pool = [](const Memory* memory) -> Pool* { return new (std::nothrow) Pool(*memory); },
    .free_pool = [](Pool* pool) { delete pool; },
    .open = &open,
    .close = [](File* file) { delete file; },
    .row_groups = [](const File* file) { return not_negative(file->metadata().num_row_groups()); },
    .rows =
        [](const File* file, std::uint64_t row_group) {
          return not_negative(file->metadata().RowGroup(static_cast<int>(row_group))->num_rows());
        },
    .leaves = [](const File* file) { return not_negative(file->metadata().num_columns()); },
    .leaf_bytes = [](const File* file, std::uint64_t row_group, std::uint64_t leaf) -> std::uint64_t {
      try {
        const auto group = file->metadata().RowGroup(static_cast<int>(row_group));
        return not_negative(group->ColumnChunk(static_cast<int>(leaf))->total_uncompressed_size());
      } catch (const std::exception&) {
        return 0;  // Reading it says what is wrong.
      }
    },
    .leaf_values = [](const File* file, std::uint64_t row_group, std::uint64_t leaf) -> std::uint64_t {
      try {
        const auto group = file->metadata().RowGroup(static_cast<int>(row_group));
        return not_negative(group->ColumnChunk(static_cast<int>(leaf))->num_values());
      } catch (const std::exception&) {
        return 0;
      }
    },
    .leaf_range = [](const File* file, std::uint64_t row_group, std::uint64_t leaf) -> Range {
      try {
        const auto group = file->metadata().RowGroup(static_cast<int>(row_group));
        const auto chunk = group->ColumnChunk(static_cast<int>(leaf));
        std::int64_t begin = chunk->data_page_offset();
        // As Arrow's own reader decides it.
        if (chunk->has_dictionary_page() && chunk->dictionary_page_offset() > 0)
          begin = std::min(begin, chunk->dictionary_page_offset());
        return {.offset_bytes = not_negative(begin), .size_bytes = not_negative(chunk->total_compressed_size())};
      } catch (const std::exception&) {
        return {};
      }
    },
    .schema = &schema,
    .read = &read};

}  // namespace
}  // namespace gyre::data::parquet

extern "C" __attribute__((visibility("default"))) const gyre::data::parquet::Interface* gyre_parquet_interface() {
  return &gyre::data::parquet::kInterface;
}
