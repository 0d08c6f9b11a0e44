# SPDX-License-Identifier: Apache-2.0
# The programs that stand on the client library: f8bench for newcomers and benchmarks, f8ctl for
# operators. Both speak to the daemon as any client does.

# f8bench's parts that need no daemon, which the tests link too. The checker is one of its own, so
# that a test can see that it links nothing else.
add_library(f8bench_check STATIC bench/check.c bench/check_delayed.c
    bench/check_format.c)
target_link_libraries(f8bench_check PUBLIC m)
target_include_directories(f8bench_check PUBLIC ${CMAKE_SOURCE_DIR}/proto) # status.h of f8client.h

add_library(f8bench_model STATIC bench/model.c bench/model_files.c bench/safetensors.c)
target_link_libraries(f8bench_model PUBLIC PkgConfig::JANSSON)
target_include_directories(f8bench_model PUBLIC ${CMAKE_SOURCE_DIR}/proto)

# The optimizer's stand-in must not be slower than what it feeds: its loops in vectors.
add_library(f8bench_source STATIC bench/source.c)
target_link_libraries(f8bench_source PUBLIC f8bench_check f8bench_model)
target_compile_options(f8bench_source PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O3>)

add_library(f8bench_layout STATIC bench/layout.c bench/histogram.c)
target_link_libraries(f8bench_layout PUBLIC f8bench_model f8proto m)

# Hosts made of network namespaces, which tests over several hosts use too.
add_library(f8bench_network STATIC
    bench/network.c bench/network_shape.c bench/network_delay.c bench/exchange.c)

# Hosts that are machines, with an f8bench each.
add_library(f8bench_meeting STATIC bench/addresses.c bench/link.c bench/meeting.c
    bench/meeting_fail.c bench/meeting_open.c bench/meeting_host.c bench/settings.c)
target_link_libraries(f8bench_meeting PUBLIC f8bench_model f8proto)
target_include_directories(f8bench_meeting PUBLIC ${CMAKE_SOURCE_DIR}/proto)

# A private daemon and what processes share, which the conformance program uses too.
add_library(f8bench_daemon STATIC bench/daemon.c bench/shared.c)
target_link_libraries(f8bench_daemon PUBLIC f8bench_network Threads::Threads)
target_include_directories(f8bench_daemon PUBLIC ${CMAKE_SOURCE_DIR}/proto)

add_executable(f8bench
    bench/main.c bench/exchange_command.c bench/options.c bench/options_hosts.c bench/run.c
    bench/run_hosts.c bench/run_watch.c bench/run_ctl.c bench/run_far.c bench/harvest.c bench/rank.c
    bench/rank_open.c bench/rank_check.c bench/rank_hosts.c bench/torch.c bench/gpu.c bench/probe.c
    bench/summary.c bench/summary_hosts.c bench/report.c bench/report_hosts.c)
target_link_libraries(f8bench PRIVATE f8bench_source f8bench_layout f8bench_meeting f8bench_daemon f8bench_network
    f8client_static f8proto
    PkgConfig::JANSSON Threads::Threads)

add_executable(f8ctl
    ctl/main.c ctl/options.c ctl/help.c ctl/views.c ctl/history.c ctl/completion.c
    ctl/completion_bash.c ctl/completion_zsh.c ctl/completion_fish.c ctl/report.c ctl/report_rank.c
    ctl/report_table.c ctl/report_attention.c ctl/report_page.c ctl/report_style.c ctl/stats.c
    ctl/stats_command.c ctl/columns_stats.c ctl/series.c ctl/axis.c ctl/plot.c ctl/svg.c ctl/html.c
    ctl/whole_file.c ctl/transfer.c ctl/transfer_form.c ctl/state_doc.c ctl/state_json.c
    ctl/state_json_read.c ctl/snapshot.c ctl/confirm.c ctl/admin.c ctl/drain.c ctl/metrics.c
    ctl/unique_id.c ctl/columns.c ctl/columns_weights.c ctl/columns_devices.c ctl/columns_hosts.c
    ctl/columns_snapshots.c ctl/sparkline.c ctl/sort.c ctl/fetch.c ctl/print_table.c
    ctl/table_fit.c ctl/colour.c
    ctl/print_json.c
    ctl/doctor.c ctl/doctor_path.c ctl/doctor_meet.c ctl/doctor_gather.c ctl/doctor_host.c
    ctl/doctor_socket.c ctl/doctor_directory.c ctl/doctor_limits.c ctl/doctor_kernel.c
    ctl/doctor_devices.c ctl/options_live.c ctl/watch.c ctl/watch_print.c ctl/top.c ctl/top_sample.c
    ctl/top_text.c ctl/top_json.c ctl/top_screen.c ctl/columns_top.c)
target_link_libraries(f8ctl PRIVATE f8client_static f8proto PkgConfig::JANSSON ZLIB::ZLIB m)

install(TARGETS f8bench f8ctl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# The scripts of completion, which f8ctl prints; in the folder that each shell looks in.
foreach(place bash bash-completion/completions/f8ctl zsh zsh/site-functions/_f8ctl
        fish fish/vendor_completions.d/f8ctl.fish)
    if(place MATCHES "/")
        cmake_path(GET place PARENT_PATH folder)
        set(script ${CMAKE_CURRENT_BINARY_DIR}/completion/${place})
        file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/completion/${folder})
        add_custom_command(OUTPUT ${script} COMMAND f8ctl completion ${shell} > ${script}
            DEPENDS f8ctl VERBATIM)
        list(APPEND F8_COMPLETION ${script})
        install(FILES ${script} DESTINATION ${CMAKE_INSTALL_DATADIR}/${folder})
    else()
        set(shell ${place})
    endif()
endforeach()
add_custom_target(completion ALL DEPENDS ${F8_COMPLETION})
