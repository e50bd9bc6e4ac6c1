KERNEL(256) void inner(const bf16* __restrict__ g_in0, const bf16* __restrict__ g_in1, const bf16* __restrict__ g_in2, bf16* __restrict__ g_out0, bf16* __restrict__ g_out1, bf16* __restrict__ g_out2, i32 p0, i32 p1, i32 p2, i32 p3, f32 p4) {
  f32* s_sum0 = (f32*)(shared_memory());
  f32* s_sum1 = (f32*)(shared_memory() + 32);
  bf16* s_in0 = (bf16*)(shared_memory() + 64);
  f32 r_sum1[8];
  f32 r_sum5[8];
  bf16 r_in0[8];
  bf16 r_out0[8];
  bf16 r_in1[8];
  bf16 r_in2[8];
  bf16 r_out1[1];
  bf16 r_out2[1];
  const i32 v0 = p0 * block_x();
  const i32 v1 = v0 % 8;
  const i32 v2 = p1;
  const i32 v3 = thread_x() * 8;
  const bool v4 = block_x() < p2;
  _Pragma("unroll 1")
  for (i32 v5 = 0; v5 < p3; ++v5) {
    const i32 v6 = ((v5 * 256) + thread_x()) * 8;
    const i32 v7 = ((v5 * 2048) + v3) - v1;
    const i32 v8 = v0 + v7;
    copy_async_some<8>(s_in0 + v6, g_in0 + v8, (v4 && (v7 < p0)) ? (v2 - v8) : 0);
  }
  commit_copies();
  wait_copies<0>();
  reset<Sum>(r_sum1);
  _Pragma("unroll 1")
  for (i32 v5 = 0; v5 < p3; ++v5) {
    const i32 v9 = ((v5 * 2048) + v3) - v1;
    const i32 v10 = p0 - v9;
    const i32 v11 = 0 - v9;
    const bool v12 = v11 < 1;
    const bool v13 = (v4 && (7 < v10)) && v12;
    if (v13) {
      const i32 v14 = ((v5 * 256) + thread_x()) * 8;
      load(r_in0, s_in0 + v14);
      UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
        accumulate_(Sum(), r_sum1[v15], to<f32>(r_in0[v15]));
      }
    }
    const bool v16 = 0 < v10;
    if (v4 && (!v13 && v16)) {
      const i32 v17 = ((v5 * 256) + thread_x()) * 8;
      load(r_in0, s_in0 + v17);
      UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
        const i32 v18 = v10 - v15;
        const i32 v19 = v11 - v15;
        const bool v20 = (0 < v18) && (v19 < 1);
        if (v20) accumulate_(Sum(), r_sum1[v15], to<f32>(r_in0[v15]));
      }
    }
  }
  fold<Sum>(r_sum1);
  r_sum1[0] = reduce_lanes<Sum, 32>(r_sum1[0]);
  publish_warp(s_sum0, r_sum1[0]);
  sync_block();
  r_sum1[0] = collect_warps<Sum, 8>(s_sum0);
  const f32 v21 = r_sum1[0] * p4;
  const bf16 v22 = to<bf16>(v21);
  reset<Sum>(r_sum5);
  _Pragma("unroll 1")
  for (i32 v5 = 0; v5 < p3; ++v5) {
    const i32 v23 = ((v5 * 2048) + v3) - v1;
    const i32 v24 = p0 - v23;
    const i32 v25 = 0 - v23;
    const bool v26 = v25 < 1;
    const bool v27 = (v4 && (7 < v24)) && v26;
    if (v27) {
      const i32 v28 = ((v5 * 256) + thread_x()) * 8;
      load(r_in0, s_in0 + v28);
      UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
        const f32 v29 = to<f32>(r_in0[v15]) - v21;
        accumulate_(Sum(), r_sum5[v15], v29, v29);
      }
    }
    const bool v30 = 0 < v24;
    if (v4 && (!v27 && v30)) {
      const i32 v31 = ((v5 * 256) + thread_x()) * 8;
      load(r_in0, s_in0 + v31);
      UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
        const f32 v32 = to<f32>(r_in0[v15]) - v21;
        const i32 v33 = v24 - v15;
        const i32 v34 = v25 - v15;
        const bool v35 = (0 < v33) && (v34 < 1);
        if (v35) accumulate_(Sum(), r_sum5[v15], v32, v32);
      }
    }
  }
  fold<Sum>(r_sum5);
  r_sum5[0] = reduce_lanes<Sum, 32>(r_sum5[0]);
  publish_warp(s_sum1, r_sum5[0]);
  sync_block();
  r_sum5[0] = collect_warps<Sum, 8>(s_sum1);
  const f32 v36 = fma_rn(r_sum5[0], p4, 9.99999975e-06f);
  const f32 v37 = rsqrt_(v36);
  const bf16 v38 = to<bf16>(v37);
  _Pragma("unroll 1")
  for (i32 v5 = 0; v5 < p3; ++v5) {
    const i32 v39 = ((v5 * 2048) + v3) - v1;
    const i32 v40 = p0 - v39;
    const i32 v41 = 0 - v39;
    const bool v42 = v41 < 1;
    const bool v43 = (v4 && (14 < v40)) && v42;
    if (v43) {
      const i32 v44 = ((v5 * 256) + thread_x()) * 8;
      load(r_in0, s_in0 + v44);
      load_shifted(r_in1, g_in1, v39);
      load_shifted(r_in2, g_in2, v39);
      UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
        const f32 v45 = to<f32>(r_in0[v15]) - v21;
        const f32 v46 = v45 * v37;
        const f32 v47 = fma_rn(v46, to<f32>(r_in1[v15]), to<f32>(r_in2[v15]));
        const bf16 v48 = to<bf16>(v47);
        r_out0[v15] = v48;
      }
      const i32 v49 = v0 + v39;
      store(g_out0 + v49, r_out0);
    }
    const bool v50 = 0 < v40;
    if (v4 && (!v43 && v50)) {
      const i32 v51 = ((v5 * 256) + thread_x()) * 8;
      load(r_in0, s_in0 + v51);
      UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
        const i32 v52 = v15 + v39;
        const i32 v53 = v40 - v15;
        const i32 v54 = v41 - v15;
        r_in1[v15] = bf16{};
        if (v53 > 0 && v54 <= 0) r_in1[v15] = load1(g_in1 + v52);
      }
      UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
        const i32 v55 = v15 + v39;
        const i32 v56 = v40 - v15;
        const i32 v57 = v41 - v15;
        r_in2[v15] = bf16{};
        if (v56 > 0 && v57 <= 0) r_in2[v15] = load1(g_in2 + v55);
      }
      UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
        const f32 v58 = to<f32>(r_in0[v15]) - v21;
        const f32 v59 = v58 * v37;
        const f32 v60 = fma_rn(v59, to<f32>(r_in1[v15]), to<f32>(r_in2[v15]));
        const bf16 v61 = to<bf16>(v60);
        r_out0[v15] = v61;
      }
      const i32 v62 = v0 + v39;
      store_part(g_out0 + v62, r_out0, v41, v4 ? v40 : 0);
    }
  }
  r_out1[0] = v22;
  r_out2[0] = v38;
  const bool v63 = (thread_x() == 0) && v4;
  store_if(g_out1 + block_x(), r_out1, v63);
  store_if(g_out2 + block_x(), r_out2, v63);
}
