# The tests that take longest start first, so that no core waits for the last one at the end. CTest includes this
# after the tests are listed (tests/CMakeLists.txt). The first four take all cores, so they come before the others; then
# about the seconds on two cores. Only the order matters.
foreach(test_and_cost
    training/Mpi8/TrainingWorkersOf=203 training/Mpi4/TrainingWorkersOf=202 training/Mpi2/TrainingWorkersOf=201
    comm/Mpi/WorkersOf=200 cli/experiment_test=110 cli/systems_test=90
    cli/model_parallel_test=90 cli/stop_test=80 cli/workers_test=80 oracles/tokenizer_test=80 cli/worker_attacks_test=75 cluster/cluster_test=70
    oracles/hf_export_test=70 cli/habits_test=55 comm/Launch=50 cli/assign_test=45 cli/eval_test=45
    tools/follow_metrics_test=39 tools/dist_test=37 tools/install_test=37)
  string(REGEX MATCH "(.*)=(.*)" unused ${test_and_cost})
  set_tests_properties(${CMAKE_MATCH_1} PROPERTIES COST ${CMAKE_MATCH_2})
endforeach()

# Workers of whole suites wait for each other thousands of times. Beside another test they take 2 to 5 times as long as
# alone, and hold that up too.
foreach(test_and_workers training/Mpi8/TrainingWorkersOf=8 training/Mpi4/TrainingWorkersOf=4 training/Mpi2/TrainingWorkersOf=2
    comm/Mpi/WorkersOf=8)
  string(REGEX MATCH "(.*)=(.*)" unused ${test_and_workers})
  set_tests_properties(${CMAKE_MATCH_1} PROPERTIES PROCESSORS ${CMAKE_MATCH_2})
endforeach()
