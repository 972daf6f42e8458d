import pytest

from analyzers.trace.kernel_names import is_communication, looks_like_communication, path_of, short_name

COMMUNICATION = [
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
    "ncclSendRecvKernel_copy_i8(ncclColl)",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclSymDevKernel_AllGather_LL(ncclSymDevArgs)",
    "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32(ncclSymkDevWorkArgs4K)",
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
    "rcclGenericKernel<1, 2>(ncclDevComm*)",
    "void mscclKernel_Sum_float_LL(ncclDevComm*)",
    "nvshmemi_transfer_kernel(int)",
    "void c10d::nvshmem_extension::allToAllV(void*)",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
    "void c10d::symmetric_memory::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8, 4>(c10::BFloat16**)",
    "two_shot_all_reduce_kernel_inplace<float>(float**)",
    "void c10d::intra_node_comm::oneShotAllReduce<8u, true>(c10::BFloat16*, unsigned long)",
    "void tensorrt_llm::kernels::twoShotAllReduceKernel<float, 4>(AllReduceParams)",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<float>(int)",
    "hybridCubeMeshAllReduce<8>(float*)",
    "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)",
    "void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*, float*)",
    "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*)",
    "void dpsk::ep::internode::notify_dispatch<false, 4>(int const*, int*, int)",
    "_ZN4dpsk2ep12internode_ll7combineILb1ELi10EEEvPvPKf",
    "_ZN7deep_ep7elastic13dispatch_implILi24EEEvPv",
    "void deep_ep::elastic::(anonymous namespace)::combine_impl<8, 7168>(void*)",
    "void uccl::internode_ll::dispatch<true, 10, 7168>(void*, void*)",
    "void mori::moe::EpDispatchIntraNodeKernel<hip_bfloat16, false>(mori::moe::EpDispatchCombineArgs<hip_bfloat16>)",
    "EpCombineInterNodeV1KernelLowLatency_bf16",
    "void mori::collective::OneShotAll2allSdmaKernel<unsigned int>(int, int)",
    "OneShotAllGatherSdmaKernel_u32",
    "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8, false>(int const*, DispatchKernelPointers, int)",
    "_ZN12tensorrt_llm7kernels8moe_comm20moeA2ACombineKernelINS1_9WarpPolicyE13__nv_bfloat16Li8EEEvi",
    "void flashinfer::trtllm_alltoall::moeAllToAllKernel<4, false>(FusedMoeCommKernelParam)",
    "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int, int, int)",
    "kuserbuffers_pushsend(int*, int*, int4*, int4*, int)",
    "void mscclpp::collective::allgatherFullmesh2<true>(void*, mscclpp::DeviceHandle<mscclpp::MemoryChannel>*)",
    "void aiter::cross_device_reduce_2stage<hip_bfloat16, 8>(aiter::RankData*)",
    "_ZN5aiter33reduce_scatter_cross_device_storeIDF16bLi8EEEvPNS_8RankDataENS_11RankSignalsE.kd",
    "_ZN4vllm26cross_device_reduce_1stageI13__nv_bfloat16Li8EEEvPNS_8RankDataE",
    "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half, 4>, true>, __half>(int)",
    "oneccl_allreduce_pcie(sycl::queue)",
    "hcom_allReduce__363_0_1",
    "_ZN12_GLOBAL__N_126multimem_all_reduce_kernelIN3c108BFloat16ELi16EEEvPT_m",
    "nccldevkernel_allreduce_sum_f32_ring_ll(nccldevkernelargsstorage<4096ul>)",
    "ncclkernel_allgather_ring_ll_sum_int8_t(nccldevcomm*, unsigned long, ncclwork*)",
    "ncclsymkdevkernel_allreduce_agxll_r_sum_f32(ncclsymkdevworkargs4k)",
    "void deep_ep::legacy::intranode::dispatch<8, 768, 8192>(int4*)",
    "_ZN7deep_ep6legacy12internode_ll7combineILb1EEEvPv",
    "void primus_turbo::deep_ep::intranode::cached_notify_combine<8>(void**, int*)",
    "void primus_turbo::deep_ep::legacy::internode::dispatch<true>(void*)",
    "void nccl_ep::internode_ll::dispatch<true, 10>(void*)",
    "nccl_ep_jit_ht_dispatch_kernel",
    "nccl_ep_jit_ll_combine_kernel",
    "void hybrid_ep::dispatch_kernel<hybrid_ep::dispatch_config<1>>(void*)",
    "hybrid_ep::device_sync_kernel(unsigned int*, unsigned int)",
    "void aiter::allreduce_fusion_kernel_1stage<hip_bfloat16, 8, 7168>(aiter::RankData*)",
    "_ZN5aiter30allreduce_fusion_kernel_2stageIDF16bLi8EEEvv",
]
COMPUTE = [
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(int)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 4>(int)",
    "void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>(void*)",
    "triton_poi_fused_add_cos_sin_0",
    "Cijk_Alik_Bljk_SB_MT64x16x32_MI16x16x1_SN_1LDSB0",
    "void step::intranode::update<float>(float*)",
    "void deep_gemm::sm90_fp8_gemm_1d2d_impl<7168, 4096>(float*)",
    "void at::native::(anonymous namespace)::transpose_kernel<float>(float*)",
    "EpilogueCombine(int)",
    "vllm::moe::topk_gating<8>(float*)",
]
# Inductor names a kernel after every operator that it fuses.
FUSED = [
    "triton_poi_fused_reduce_scatter_tensor_wait_tensor_3",
    "triton_red_fused__to_copy_all_gather_into_tensor_all_reduce_0",
    "triton_poi_fused_nccl_all_to_all_single_1",
]
SUSPICIOUS = [
    "my_fused_allreduce_rmsnorm",
    "AllGatherGemm",
    "ncclx_pipes_kernel",
    "custom_all_to_all_sendrecv(int)",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)",
    "_ZN4dpsk2ep6layout19get_dispatch_layoutEv",
    "local_a2a_permute",
    "reducescatter_ring",
    "my_userbuffers_copy",
    "allreduce_LL_1node<__half>(mscclpp::DeviceHandle<mscclpp::MemoryChannel>*)",
    "void nccl_ep::hybridep::dense_to_sparse_prob<8>(float*)",
    "void primus_turbo::deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)",
]


@pytest.mark.parametrize("name", COMMUNICATION)
def test_communication(name):
    assert is_communication(name)
    assert not looks_like_communication(name)


@pytest.mark.parametrize("name", COMPUTE)
def test_compute(name):
    assert not is_communication(name)
    assert not looks_like_communication(name)


@pytest.mark.parametrize("name", FUSED)
def test_inductors_kernels_are_compute_without_a_warning(name):
    assert not is_communication(name)
    assert not looks_like_communication(name)


@pytest.mark.parametrize("name", SUSPICIOUS)
def test_names_that_no_rule_knows_are_noticed(name):
    assert not is_communication(name)
    assert looks_like_communication(name)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("void a::b<int, c<4>>::kernel<d::e>(f*, g<h>)", "a::b::kernel"),
        ("void (anonymous namespace)::kernel<1>(int)", "kernel"),
        ("_ZN1a1b6kernelILi4EEEvPv", "a::b::kernel"),
        ("_Z6kernelPv", "kernel"),
        ("_ZN1aL6kernelEPv.kd", "a::kernel"),
        ("kernel [clone .kd]", "kernel"),
        ("_Zoo", "_Zoo"),
        ("", ""),
    ],
)
def test_the_path_of_a_kernel_is_its_name_behind_its_namespaces(name, path):
    assert path_of(name) == path


NATIVE = "void at::native::"
NESTED = (
    "elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<float, float, float, "
    "at::native::binary_internal::MulFunctor<float> > >(at::TensorIteratorBase&)>(int)"
)
CUTLASS = "cutlass_80_simt_sgemm_128x64_8x5_nt_align1"
SHORT = {
    f"{NATIVE}vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)": (
        "CUDAFunctor_add"
    ),
    NATIVE + NESTED: "MulFunctor",
    f"{NATIVE}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float> > >(int)": "MeanOps",
    f"void cutlass::Kernel2<{CUTLASS}>(int)": CUTLASS,
    "void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::Params<float>)": "splitKreduce_kernel",
    f"{NATIVE}vectorized_elementwise_kernel<4, std::array<char*, 3ul> >(int)": "vectorized_elementwise_kernel",
    "_ZN17cutlass__5x_cudnn6KernelINS_4convE": "Kernel",
    "Memcpy HtoD (Pageable -> Device)": "Memcpy HtoD",
    "aten::add_": "add_",
}


@pytest.mark.parametrize(("name", "short"), SHORT.items())
def test_a_kernels_short_name_says_what_it_does(name, short):
    assert short_name(name) == short
